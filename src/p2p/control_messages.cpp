// SPDX-License-Identifier: Apache-2.0
#include "p2p/control_messages.hpp"

#include "base/little_endian.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::p2p {
namespace {

// The extent and the subject of a failure are stored in the word of its reason.
constexpr std::int32_t reaches_children = 0x100;
constexpr std::int32_t names_collective = 0x200;
constexpr std::int32_t reaches_unmade = 0x400;
constexpr std::size_t most_failed_told = 4096;
constexpr std::size_t longest_text_told = 4000;

}  // namespace

// The payload: the first collective that fails, the number of failed ranks, these ranks (4 bytes each), and
// the text.
control_frame failure_message::encode(std::uint32_t context) const {
  const std::size_t count = std::min(failed.size(), most_failed_told);
  const std::size_t text_bytes = std::min(text.size(), longest_text_told);
  control_frame f{{.kind = frame_kind::fail, .context = context, .tag = static_cast<std::int32_t>(why)}};
  if (reach == extent::children) f.head.tag |= reaches_children;
  if (reach == extent::unmade) f.head.tag |= reaches_unmade;
  if (names == subject::collective) f.head.tag |= names_collective;
  f.head.length = 4 * (2 + count) + text_bytes;
  f.payload.resize(f.head.length);
  auto* at = reinterpret_cast<std::uint8_t*>(f.payload.data());
  base::put_little_endian(at, first);
  base::put_little_endian(at += 4, static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    base::put_little_endian(at += 4, static_cast<std::uint32_t>(failed[i]));
  std::memcpy(at + 4, text.data(), text_bytes);
  return f;
}

errc reason_of(std::uint32_t code) noexcept {
  const bool valid =
      code > static_cast<std::uint32_t>(errc::success) && code <= static_cast<std::uint32_t>(errc::system);
  return valid ? static_cast<errc>(code) : errc::protocol;
}

failure_message failure_message::decode(const frame& head, std::span<const std::byte> payload,
                                        std::size_t ranks) {
  failure_message told;
  told.why = reason_of(
      static_cast<std::uint32_t>(head.tag & ~(reaches_children | names_collective | reaches_unmade)));
  if ((head.tag & reaches_children) != 0) told.reach = extent::children;
  if ((head.tag & reaches_unmade) != 0) told.reach = extent::unmade;
  if ((head.tag & names_collective) != 0) told.names = subject::collective;
  const auto number = [&](std::size_t i) {
    return base::get_little_endian<std::uint32_t>(reinterpret_cast<const std::uint8_t*>(payload.data()) +
                                                  4 * i);
  };
  const std::size_t words = payload.size() / 4;
  const std::size_t count = words < 2 ? 0 : std::min<std::size_t>(number(1), words - 2);
  if (words >= 2) told.first = number(0);
  for (std::size_t i = 2; i < 2 + count && told.failed.size() < most_failed_told; ++i)
    if (number(i) < ranks) told.failed.push_back(static_cast<int>(number(i)));
  const std::span<const std::byte> text = payload.subspan(words < 2 ? 0 : 4 * (2 + count));
  told.text.assign(reinterpret_cast<const char*>(text.data()), std::min(text.size(), longest_text_told));
  return told;
}

control_frame progress_message::encode(std::uint32_t context) const {
  return {{.kind = frame_kind::tell,
           .context = context,
           .tag = static_cast<std::int32_t>(sequence),
           .length = static_cast<std::uint64_t>(waits_for + 1),
           .transfer_id = static_cast<std::uint64_t>(at),
           .other_transfer_id = last,
           .fingerprint = print}};
}

std::optional<progress_message> progress_message::decode(const frame& head, std::size_t ranks) noexcept {
  if (head.transfer_id > static_cast<std::uint64_t>(state::no_communicator)) return std::nullopt;
  return progress_message{
      .sequence = static_cast<std::uint32_t>(head.tag),
      .at = static_cast<state>(head.transfer_id),
      .last = head.other_transfer_id,
      .print = head.fingerprint,
      .waits_for = head.length > 0 && head.length <= ranks ? static_cast<int>(head.length) - 1 : -1};
}

}  // namespace tutti::p2p
