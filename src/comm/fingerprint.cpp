// SPDX-License-Identifier: Apache-2.0
#include "comm/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>

namespace tutti::comm {
namespace {

std::string size_text(std::uint16_t mark) {
  constexpr std::uint16_t hashed = collective_description::least_hashed_bytes;
  if (mark >= hashed) return fmt::format("{} or more bytes, size with hash {:04x}", hashed, mark);
  return mark == 1 ? "1 byte" : fmt::format("{} bytes", mark);
}

}  // namespace

p2p::fingerprint fingerprint_of(const collective_description& d) noexcept {
  auto print = std::bit_cast<p2p::fingerprint>(d);
  print[0] = static_cast<std::byte>(d.kind + 1);  // never all zero, which means point to point
  return print;
}

std::string describe(const p2p::fingerprint& print) {
  auto d = std::bit_cast<collective_description>(print);
  const char* const prefix = (d.kind & being_prepared) != 0 ? "prepare of " : "";
  const bool device = (d.kind & on_device) != 0;
  d.kind &= static_cast<std::uint8_t>(~(being_prepared | on_device));
  const auto kind = static_cast<detail::operation_kind>(d.kind - 1);
  if (d.kind == 0 || kind > detail::operation_kind::window)
    return fmt::format("an unknown collective ({})", d.kind);
  const std::uint64_t count = d.count;
  std::string description;
  const auto say = [&description](const std::string& more) {
    description += (description.empty() ? "" : ", ") + more;
  };
  const detail::operation_row& row = detail::row_of(kind);
  // Only the size of such elements is known.
  const bool opaque = static_cast<element_type>(d.type) == element_type::opaque;
  const std::string type = opaque && d.reduction == 0 ? size_text(static_cast<std::uint16_t>(d.callable))
                                                      : name_of(static_cast<element_type>(d.type));
  if (kind == detail::operation_kind::group) {
    say(fmt::format("ranks with hash {:x}", count));
  } else if (row.counts_known()) {
    say(fmt::format("{}, counts with hash {:x}", type, count));
  } else if (row.uneven() || kind == detail::operation_kind::window) {
    say(type);
  } else if (row.out != detail::shape::nothing) {
    say(fmt::format("{} elements of {}", count, type));
  }
  if (const auto reduction = static_cast<reduce_kind>(d.reduction); reduction != reduce_kind::none)
    say(reduction == reduce_kind::user
            ? fmt::format("callable {} {:04x}", opaque ? "and size of elements with hash" : "of type",
                          std::uint64_t{d.callable})
            : name_of(reduction));
  if (d.root >= 0) say(fmt::format("{} {}", row.rooted ? "root" : "list of", d.root));
  if (device) say("in memory of devices");
  return fmt::format("{}{}({})", prefix, detail::name_of(kind), description);
}

std::string describe_algorithm(const p2p::fingerprint& print) {
  const auto d = std::bit_cast<collective_description>(print);
  const bool two_levels = (d.algorithm & in_two_levels) != 0;
  return fmt::format("{}{}", name_of(static_cast<algorithm>(d.algorithm & ~in_two_levels)),
                     two_levels ? " in two levels" : "");
}

bool waits_for_all(const p2p::fingerprint& print) noexcept {
  using kind = detail::operation_kind;
  constexpr kind mutual[] = {kind::barrier, kind::all_reduce, kind::all_gather, kind::reduce_scatter,
                             kind::all_to_all};
  const auto d = std::bit_cast<collective_description>(print);
  const auto what = static_cast<kind>((d.kind & ~on_device) - 1);  // none of these if it is being prepared
  const bool is_empty = d.count == 0 && what != kind::barrier && (d.kind & on_device) == 0;
  return std::ranges::find(mutual, what) != std::end(mutual) && !is_empty;
}

}  // namespace tutti::comm
