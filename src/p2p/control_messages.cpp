// SPDX-License-Identifier: Apache-2.0
#include "p2p/control_messages.hpp"

#include "base/little_endian.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::p2p {
namespace {

using transport::frame;
using transport::frame_kind;

// The extent of a failure is stored in the word of its reason.
constexpr std::int32_t reaches_children = 0x100;
constexpr std::size_t most_failed_told = 4096;
constexpr std::size_t longest_text_told = 4000;

frame frame_of(frame_kind kind, std::uint32_t context, std::uint32_t tag) noexcept {
  frame head;
  head.kind = kind;
  head.context = context;
  head.tag = static_cast<std::int32_t>(tag);
  return head;
}

}  // namespace

frame failure_frame(std::uint32_t context, const failure_notice& what) noexcept {
  frame head = frame_of(frame_kind::fail, context, 0);
  head.tag = static_cast<std::int32_t>(what.why) | (what.reach == extent::children ? reaches_children : 0);
  return head;
}

// The payload: the first collective that fails, the number of failed ranks, these ranks (4 bytes each), and
// the text.
std::vector<std::byte> payload_of(const failure_notice& what) {
  const std::span<const int> failed = what.failed.first(std::min(what.failed.size(), most_failed_told));
  const std::size_t text_bytes = std::min(what.text.size(), longest_text_told);
  std::vector<std::byte> payload(4 * (2 + failed.size()) + text_bytes);
  auto* at = reinterpret_cast<std::uint8_t*>(payload.data());
  base::put_little_endian(at, what.first);
  base::put_little_endian(at += 4, static_cast<std::uint32_t>(failed.size()));
  for (const int rank : failed) base::put_little_endian(at += 4, static_cast<std::uint32_t>(rank));
  std::memcpy(at + 4, what.text.data(), text_bytes);
  return payload;
}

told_failure failure_of(const frame& head, std::span<const std::byte> payload, std::size_t ranks) noexcept {
  told_failure told{static_cast<errc>(head.tag & ~reaches_children),
                    {},
                    (head.tag & reaches_children) != 0 ? extent::children : extent::one,
                    {},
                    0};
  if (payload.empty()) return told;
  const auto number = [&](std::size_t i) {
    return base::get_little_endian<std::uint32_t>(reinterpret_cast<const std::uint8_t*>(payload.data()) +
                                                  4 * i);
  };
  const std::size_t words = payload.size() / 4;
  const std::size_t count = words < 2 ? 0 : std::min<std::size_t>(number(1), words - 2);
  if (words >= 2) told.first = number(0);
  for (std::size_t i = 2; i < 2 + count; ++i)
    if (number(i) < ranks) told.failed.push_back(static_cast<int>(number(i)));
  const std::span<const std::byte> text = payload.subspan(words < 2 ? 0 : 4 * (2 + count));
  told.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return told;
}

frame agreement_frame(std::uint32_t context, std::uint32_t round) noexcept {
  return frame_of(frame_kind::agree, context, round);
}

frame notice_frame(std::uint32_t context, std::uint32_t sequence, const fingerprint& print) noexcept {
  frame head = frame_of(frame_kind::notice, context, sequence);
  head.fingerprint = print;
  return head;
}

frame inquiry_frame(std::uint32_t context, std::uint32_t sequence) noexcept {
  return frame_of(frame_kind::ask, context, sequence);
}

frame progress_frame(std::uint32_t context, std::uint32_t sequence,
                     const collective_progress& here) noexcept {
  frame head = frame_of(frame_kind::tell, context, sequence);
  head.transfer_id = static_cast<std::uint64_t>(here.at);
  head.other_transfer_id = here.last;
  head.fingerprint = here.print;
  head.length = static_cast<std::uint64_t>(here.waits_for + 1);
  return head;
}

std::optional<collective_progress> progress_of(const frame& head, std::size_t ranks) noexcept {
  if (head.transfer_id > static_cast<std::uint64_t>(collective_progress::state::no_communicator))
    return std::nullopt;
  collective_progress there;
  there.at = static_cast<collective_progress::state>(head.transfer_id);
  there.last = head.other_transfer_id;
  there.print = head.fingerprint;
  if (head.length > 0 && head.length <= ranks) there.waits_for = static_cast<int>(head.length) - 1;
  return there;
}

frame credit_frame(std::uint64_t bytes) noexcept {
  frame head = frame_of(frame_kind::credit, 0, 0);
  head.length = bytes;
  return head;
}

}  // namespace tutti::p2p
