// SPDX-License-Identifier: Apache-2.0
#include "ops/arguments.hpp"

#include "base/limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tutti::ops {
namespace {

using comm::communicator_state;
using detail::call;
using detail::family;
using detail::operation_row;
using detail::shape;
using kind = detail::operation_kind;

// The call may be one that was not checked.
std::string peer_text(const communicator_state& c, const call& what) {
  const bool is_rank = what.peer >= 0 && what.peer < c.size();
  const std::string peer = is_rank ? c.group().describe(what.peer) : fmt::format("rank {}", what.peer);
  if (what.kind == kind::send) return fmt::format("to {}, tag {}", peer, what.tag);
  const std::string from = what.peer == any_source ? "from any rank" : "from " + peer;
  return from + (what.tag == any_tag ? ", any tag" : fmt::format(", tag {}", what.tag));
}

std::string wrong_list(const communicator_state& c, const char* name, std::span<const std::size_t> counts,
                       std::size_t buffer, const char* buffer_name, std::size_t own, const char* own_name) {
  const auto ranks = static_cast<std::size_t>(c.size());
  if (counts.size() != ranks)
    return fmt::format("{} has {} numbers; one per rank is needed: {}", name, counts.size(), ranks);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    if (counts[i] > std::numeric_limits<std::size_t>::max() - sum)
      return fmt::format("{}[{}] is {}: no buffer is as long as these {} together", name, i, counts[i], name);
    sum += counts[i];
  }
  if (sum != buffer)
    return fmt::format("the {} add up to {}, but the {} has {} elements", name, sum, buffer_name, buffer);
  const std::size_t mine = counts[static_cast<std::size_t>(c.rank())];
  if (own_name != nullptr && mine != own)
    return fmt::format("{}[{}] is {}, but the {} of this rank has {} elements", name, c.rank(), mine,
                       own_name, own);
  return {};
}

// Whether a buffer is longer than any memory, as after the conversion of a negative number to its count.
bool too_long(const detail::buffer_view& b) noexcept {
  return b.count >> 31 != 0 && b.element_bytes > 0 &&
         b.count > limits::longest_buffer_bytes / b.element_bytes;
}

// Whether `block` is this rank's block of `whole` (by `counts`, or even).
bool is_own_block(const communicator_state& c, const detail::buffer_view& whole,
                  const detail::buffer_view& block, std::span<const std::size_t> counts) noexcept {
  std::size_t before = static_cast<std::size_t>(c.rank()) * block.count;
  if (!counts.empty()) {
    before = 0;
    for (const std::size_t n : counts.first(static_cast<std::size_t>(c.rank()))) before += n;
  }
  return static_cast<const char*>(block.data) ==
         static_cast<const char*>(whole.data) + before * whole.element_bytes;
}

std::string wrong_overlap(const communicator_state& c, const call& what, const operation_row& row) {
  if (row.in == shape::nothing || row.out == shape::nothing || !overlap(what.in, what.out)) return {};
  if (row.in == row.out) {
    if (row.uneven()) return "the input and the result overlap; give separate buffers";
    if (what.in.data == what.out.data) return {};
    return "the input and the result overlap; give the same buffer for both, or separate ones";
  }
  if (row.rooted && c.rank() != what.peer) return {};
  const bool own = row.in == shape::blocks ? is_own_block(c, what.in, what.out, what.in_counts)
                                           : is_own_block(c, what.out, what.in, what.out_counts);
  if (own) return {};
  return "the input and the result overlap elsewhere than in this rank's own block; give that block, or "
         "separate buffers";
}

constexpr const char* too_many = ", more than any memory; was its size computed from a negative number?";

// Finds a null pointer in a list, or memory that would be written twice. Memory for sorting is kept for the
// next call.
std::string wrong_pieces(const detail::buffer_list& list) {
  struct piece {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t number;
  };
  thread_local std::vector<piece> pieces;
  pieces.clear();
  for (std::size_t i = 0; i < list.size; ++i) {
    const detail::buffer_view b = list.at(list.list, i);
    if (b.count > 0 && b.data == nullptr) return fmt::format("buffer {} of the list is a null pointer", i);
    if (too_long(b)) return fmt::format("buffer {} of the list has {} elements{}", i, b.count, too_many);
    const auto begin = reinterpret_cast<std::uintptr_t>(b.data);
    if (b.bytes() > 0) pieces.push_back({begin, begin + b.bytes(), i});
  }
  const auto before = [](const piece& a, const piece& b) { return a.begin < b.begin; };
  if (!std::is_sorted(pieces.begin(), pieces.end(), before)) std::sort(pieces.begin(), pieces.end(), before);
  for (std::size_t i = 1; i < pieces.size(); ++i)
    if (pieces[i].begin < pieces[i - 1].end)
      return fmt::format("the buffers {} and {} of the list overlap",
                         std::min(pieces[i - 1].number, pieces[i].number),
                         std::max(pieces[i - 1].number, pieces[i].number));
  return {};
}

std::string outside(const communicator_state& c, const char* what, int rank) {
  return fmt::format("{} {} is outside {}, whose ranks are 0 to {}", what, rank, c.group().name(),
                     c.size() - 1);
}

std::string wrong_group(const communicator_state& c, const call& what) {
  std::vector<bool> seen(static_cast<std::size_t>(c.size()));
  for (const int rank : std::span(static_cast<const int*>(what.in.data), what.in.count)) {
    if (rank < 0 || rank >= c.size()) return outside(c, "rank", rank);
    if (seen[static_cast<std::size_t>(rank)]) return fmt::format("rank {} is named twice", rank);
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return {};
}

std::string wrong_peer(const communicator_state& c, const call& what) {
  const bool any_allowed = what.kind != kind::send;
  if ((what.peer < 0 || what.peer >= c.size()) && !(any_allowed && what.peer == any_source))
    return outside(c, "rank", what.peer);
  if (what.tag < 0 && !(any_allowed && what.tag == any_tag))
    return fmt::format("the tag {} is negative; tags are 0 to 2147483647", what.tag);
  return {};
}

std::string unequal(const call& what) {
  if (what.in.count == what.out.count) return {};
  return fmt::format("the input has {} elements, the result {}; they must be equal", what.in.count,
                     what.out.count);
}

std::string wrong_blocks_for_all(const communicator_state& c, const call& what, bool uneven) {
  if (!uneven) {
    if (std::string wrong = unequal(what); !wrong.empty()) return wrong;
    if (what.in.count % static_cast<std::size_t>(c.size()) == 0) return {};
    return fmt::format("{} elements cannot be divided among {} ranks; use all_to_all_v", what.in.count,
                       c.size());
  }
  std::string wrong = wrong_list(c, "in_counts", what.in_counts, what.in.count, "input", 0, nullptr);
  if (wrong.empty())
    wrong = wrong_list(c, "out_counts", what.out_counts, what.out.count, "result", 0, nullptr);
  const auto me = static_cast<std::size_t>(c.rank());
  if (wrong.empty() && what.in_counts[me] != what.out_counts[me])
    wrong = fmt::format("this rank sends itself {} elements, but expects {}", what.in_counts[me],
                        what.out_counts[me]);
  return wrong;
}

std::string wrong_shape(const communicator_state& c, const call& what, const operation_row& row) {
  if (row.of == family::message) return wrong_peer(c, what);
  if (what.kind == kind::group) return wrong_group(c, what);
  if (row.rooted && (what.peer < 0 || what.peer >= c.size())) return outside(c, "the root", what.peer);
  // Only the root of a rooted one has both buffers.
  const bool has_both = row.in != shape::nothing && row.out != shape::nothing && what.list.at == nullptr &&
                        (!row.rooted || c.rank() == what.peer);
  if (!has_both) return {};
  if (row.in == shape::vector) return unequal(what);
  if (row.in == row.out) return wrong_blocks_for_all(c, what, row.uneven());
  const bool from_blocks = row.in == shape::blocks;
  const detail::buffer_view& whole = from_blocks ? what.in : what.out;
  const detail::buffer_view& block = from_blocks ? what.out : what.in;
  const char* const whole_name = from_blocks ? "input" : "result";
  const char* const block_name = from_blocks ? "result" : "input";
  if (row.uneven())
    return wrong_list(c, "counts", from_blocks ? what.in_counts : what.out_counts, whole.count, whole_name,
                      block.count, block_name);
  const std::size_t needed = block.count * static_cast<std::size_t>(c.size());
  if (whole.count == needed) return {};
  return fmt::format("the {} has {} elements, but the {} has {}: {} ranks need {}", whole_name, whole.count,
                     block_name, block.count, c.size(), needed);
}

// Checks the buffers, host or device.
std::string bad_buffer(const communicator_state& c, const call& what) {
  const operation_row& row = detail::row_of(what.kind);
  if ((what.in.count | what.out.count) >> 31 != 0) [[unlikely]]
    for (const detail::buffer_view* const b : {&what.in, &what.out})
      if (too_long(*b)) return fmt::format("the buffer has {} elements{}", b->count, too_many);
  if (std::string wrong = wrong_shape(c, what, row); !wrong.empty()) return wrong;
  const auto is_null = [](const detail::buffer_view& b) {
    return b.count > 0 && b.data == nullptr && b.element_bytes > 0;
  };
  if (what.list.at != nullptr) return wrong_pieces(what.list);
  if (is_null(what.in)) return fmt::format("the buffer of {} elements is a null pointer", what.in.count);
  if (is_null(what.out)) return fmt::format("the buffer of {} elements is a null pointer", what.out.count);
  return wrong_overlap(c, what, row);
}

}  // namespace

std::string bad_argument(const communicator_state& c, const call& what) {
  if (std::string wrong = bad_buffer(c, what); !wrong.empty() || !what.part) return wrong;
  if (what.on_device() && what.wanted != algorithm::automatic)
    return "with(...) names an algorithm for memory of the host; for memory of devices a backend is chosen "
           "(open_options::backend, TUTTI_GPU_BACKEND)";
  return what.part->bad_argument(what);
}

std::string title(const communicator_state& c, const call& what) {
  const char* const operation = name_of(what.kind);
  if (what.kind == kind::send || what.kind == kind::receive)
    return fmt::format("{} of {} bytes {} on {}, rank {}", operation, what.in.bytes(), peer_text(c, what),
                       c.group().name(), c.rank());
  if (what.kind == kind::probe || what.kind == kind::matched_probe)
    return fmt::format("{} {} on {}, rank {}", operation, peer_text(c, what), c.group().name(), c.rank());
  if (detail::row_of(what.kind).of == family::one_sided) {
    const std::size_t bytes = what.in.bytes() + what.out.bytes();
    return fmt::format("{}{}{}{} on {}, rank {}", operation,
                       bytes > 0 ? fmt::format(" of {} bytes", bytes) : "",
                       what.peer >= 0 && what.peer < c.size() ? " at " + c.group().describe(what.peer) : "",
                       what.tag >= 0 ? fmt::format(", signal {}", what.tag) : "", c.group().name(), c.rank());
  }
  return fmt::format("{} on {}, rank {}", operation, c.group().name(), c.rank());
}

}  // namespace tutti::ops
