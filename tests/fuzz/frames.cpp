// SPDX-License-Identifier: Apache-2.0
// TCP frames: a header alone, and streams of frames. The input selects raw bytes, or frames with valid
// checksums and numbers. Without the latter, no code after the first check would be reached.
#include "base/crc32c.hpp"
#include "fuzz/targets.hpp"
#include "transport/tcp/frame_io.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace tutti::fuzz {
namespace {

namespace tcp = transport::tcp;
using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;

class input_stream final : public core::byte_stream {
 public:
  input_stream(bytes all, std::size_t piece) noexcept : rest_(all), piece_(piece) {}
  ssize_t read(iovec* parts, std::size_t count) noexcept override {
    std::size_t left = std::min(piece_, rest_.size());
    if (left == 0) {
      errno = EAGAIN;
      return -1;
    }
    ssize_t all = 0;
    for (std::size_t i = 0; i < count && left > 0; ++i) {
      const std::size_t n = std::min(left, parts[i].iov_len);
      std::memcpy(parts[i].iov_base, rest_.data(), n);
      rest_ = rest_.subspan(n);
      left -= n;
      all += static_cast<ssize_t>(n);
    }
    return all;
  }
  ssize_t write(const iovec*, std::size_t) noexcept override { return 0; }

 private:
  bytes rest_;
  const std::size_t piece_;
};

// Returns destination buffers of many sizes, revokes them during a frame, and checks the order and validity
// of all calls.
class upper_layer final : public transport::inbound {
 public:
  upper_layer() noexcept = default;

  destination_buffer begin(int, const frame& head) noexcept override {
    TUTTI_INVARIANT(!in_frame_ && !left_);
    TUTTI_INVARIANT(payload_bytes(head) <= tcp::slice_bytes);
    TUTTI_INVARIANT(head.kind != frame_kind::eager || head.length <= tcp::eager_limit_bytes);
    in_frame_ = true;
    head_ = head;
    // Exactly as long as allowed, so that a sanitizer finds one byte more.
    const std::size_t room = std::min<std::size_t>(payload_bytes(head), head.transfer_id % 5000);
    memory_.reset(new std::byte[room]);
    if (head.transfer_id % 7 == 0) return {};
    return destination_buffer{memory_.get(), room, this};
  }
  void end(int, const frame& head, const destination_buffer&) noexcept override {
    TUTTI_INVARIANT(in_frame_);
    TUTTI_INVARIANT(head.kind == head_.kind && head.length == head_.length);
    in_frame_ = false;
    ++ended;
    left_ = head.kind == frame_kind::leave;
  }
  void closed(int, errc, std::string) noexcept override {}

  void move(tcp::inbox& in) {
    auto instead = std::make_unique<std::byte[]>(tcp::slice_bytes);
    if (in.redirect(this, destination_buffer{instead.get(), tcp::slice_bytes, this}))
      memory_ = std::move(instead);
  }

  std::size_t ended = 0;

 private:
  bool in_frame_ = false;
  bool left_ = false;
  frame head_;
  std::unique_ptr<std::byte[]> memory_;
};

frame frame_from(reader& in) {
  frame f;
  f.kind = static_cast<frame_kind>(1 + in.value<std::uint8_t>() % 14);
  f.context = in.value<std::uint16_t>();
  f.tag = in.value<std::int8_t>();
  f.transfer_id = in.value<std::uint16_t>();
  f.other_transfer_id = in.value<std::uint16_t>();
  const auto size = in.value<std::uint32_t>();
  f.length = size % 64 == 0 ? size : size % 300;  // sometimes long
  return f;
}

}  // namespace

void frame_header(bytes input) {
  std::array<std::uint8_t, tcp::header_bytes> h{};
  reader in(input);
  const bool repaired = (in.value<std::uint8_t>() & 1) != 0;
  const bytes from = in.take(h.size());
  std::copy(from.begin(), from.end(), h.begin());
  if (repaired) {
    h[0] = h[1] = h[2] = 0x74;
    h[3] = 0x66;
    h[4] = 2;
    const std::uint32_t crc = base::crc32c(std::span(h).first(60));
    for (std::size_t i = 0; i < 4; ++i) h[60 + i] = static_cast<std::uint8_t>(crc >> (8 * i));
  }
  frame f;
  tcp::passage way;
  if (tcp::decode(h, f, way) != nullptr) return;
  TUTTI_INVARIANT(payload_bytes(f) <= tcp::slice_bytes);
  tcp::header again;
  tcp::encode(f, again, way);
  TUTTI_INVARIANT(std::equal(again.begin(), again.end(), h.begin()));
}

void frame_stream(bytes input) {
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  const bool checksums = (mode & 1) != 0;
  const std::size_t piece = (mode & 2) != 0 ? 1 << 20 : 1 + in.value<std::uint16_t>() % 700;
  const bool moves = (mode & 4) != 0;
  std::vector<std::uint8_t> stream;
  std::size_t whole = 0;
  std::uint8_t number = 0;
  bool intact = true;
  while (!in.empty() && stream.size() < 30'000) {
    const auto what = in.value<std::uint8_t>();
    if (what % 8 == 0) {
      const bytes raw = in.take(in.value<std::uint8_t>());
      stream.insert(stream.end(), raw.begin(), raw.end());
      intact &= raw.empty();
      continue;
    }
    const frame f = frame_from(in);
    tcp::passage way;
    way.number = what % 8 == 1 ? in.value<std::uint8_t>() : number;
    std::vector<std::uint8_t> payload(std::min<std::uint64_t>(payload_bytes(f), tcp::slice_bytes));
    const bytes some = in.take(std::min<std::size_t>(payload.size(), 40));
    std::copy(some.begin(), some.end(), payload.begin());
    way.checked = (checksums && !payload.empty()) != (what % 8 == 2);
    way.checksum = way.checked ? base::crc32c(payload) : 0;
    if (what % 8 == 3) way.checksum ^= in.value<std::uint8_t>();
    tcp::header h;
    tcp::encode(f, h, way);
    frame back;
    tcp::passage back_way;
    const bool right = tcp::decode(h, back, back_way) == nullptr && way.number == number &&
                       way.checked == (checksums && !payload.empty()) &&
                       (!way.checked || way.checksum == base::crc32c(payload)) &&
                       payload.size() == payload_bytes(f);
    stream.insert(stream.end(), h.begin(), h.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
    intact &= right;
    if (intact && f.kind != frame_kind::leave) ++whole;
    if (f.kind == frame_kind::leave && !in.empty()) intact = false;
    ++number;
  }
  upper_layer up;
  tcp::inbox box(1, up, checksums);
  box.open();
  input_stream from(stream, piece);
  tcp::inbox::outcome result;
  do {
    result = box.receive(from, 100'000);
    if (moves) up.move(box);
  } while (result == tcp::inbox::outcome::nearly_empty || result == tcp::inbox::outcome::more);
  TUTTI_INVARIANT((result == tcp::inbox::outcome::malformed) == (box.complaint() != nullptr));
  // All valid frames are delivered, and nothing else.
  TUTTI_INVARIANT(up.ended == whole || !intact);
  TUTTI_INVARIANT(!intact || result == tcp::inbox::outcome::empty);
  TUTTI_INVARIANT(up.ended >= whole);
}

}  // namespace tutti::fuzz
