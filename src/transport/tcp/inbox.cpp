// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/inbox.hpp"

#include "base/crc32c.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::transport::tcp {
namespace {

constexpr std::size_t staging_bytes = std::size_t{64} * 1024;
// A long payload is most often followed by the next slice of the same message. Reading only its header along,
// not 64 KiB of it, avoids copying that much twice.
constexpr std::size_t long_payload_bytes = std::size_t{16} * 1024;
constexpr std::size_t behind_long_payload_bytes = std::size_t{4} * 1024;

}  // namespace

void inbox::open() {
  if (!staging_) staging_.reset(new std::uint8_t[staging_bytes]);
}

std::size_t inbox::staging_room() const noexcept {
  const bool ends_long = in_frame_ && to_store_ == to_come_ && to_store_ >= long_payload_bytes;
  return (ends_long ? behind_long_payload_bytes : staging_bytes) - staged_;
}

inbox::outcome inbox::receive(core::byte_stream& from, std::size_t budget) noexcept {
  for (;;) {
    if (stopped_) return outcome::stopped;
    iovec parts[2];
    std::size_t count = 0;
    const std::size_t direct_room = to_store_;
    if (direct_room > 0) parts[count++] = iovec{next_, direct_room};
    const std::size_t behind = staging_room();
    parts[count++] = iovec{staging_.get() + staged_, behind};
    const ssize_t got = from.read(parts, count);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return outcome::empty;
      error_ = errno;
      return outcome::broken;
    }
    if (got == 0) return outcome::ended;
    const auto bytes = static_cast<std::size_t>(got);
    received_bytes_ += bytes;
    const std::size_t direct = std::min(bytes, direct_room);
    count_in(next_, direct, direct);
    staged_ += bytes - direct;
    if (!parse()) return stopped_ ? outcome::stopped : outcome::malformed;
    if (bytes < direct_room + behind) return outcome::nearly_empty;
    if (bytes >= budget) return outcome::more;
    budget -= bytes;
  }
}

bool inbox::parse() noexcept {
  const std::uint8_t* at = staging_.get();
  const std::uint8_t* const end = at + staged_;
  for (;;) {
    if (in_frame_) {
      const std::size_t here = std::min(to_come_, static_cast<std::size_t>(end - at));
      const std::size_t stored_here = std::min(here, to_store_);
      if (stored_here > 0) std::memcpy(next_, at, stored_here);
      count_in(at, here, stored_here);
      at += here;
      if (to_come_ > 0) break;
      if (!end_frame() || stopped_) return false;
    }
    if (static_cast<std::size_t>(end - at) < header_bytes) break;
    if (!begin_frame(at)) return false;
    at += header_bytes;
  }
  staged_ = static_cast<std::size_t>(end - at);
  if (staged_ > 0 && at != staging_.get()) std::memmove(staging_.get(), at, staged_);
  return true;
}

bool inbox::begin_frame(const std::uint8_t* at) noexcept {
  complaint_ = decode(std::span<const std::uint8_t, header_bytes>(at, header_bytes), head_, way_);
  if (complaint_ == nullptr && heard_leave_) complaint_ = "a frame behind its last one";
  if (complaint_ == nullptr && way_.number != next_number_)
    complaint_ = "a frame whose number is not the next: one is missing, or comes twice";
  if (complaint_ == nullptr && way_.checked != (checksums_ && payload_bytes(head_) > 0))
    complaint_ =
        checksums_ ? "a frame without a checksum of its payload" : "a checksum that was not agreed on";
  if (complaint_ != nullptr) return false;
  ++next_number_;
  checksum_ = 0;
  where_ = destination_buffer{};
  to_come_ = static_cast<std::size_t>(payload_bytes(head_));  // at most a slice
  to_store_ = 0;
  in_frame_ = true;
  if (head_.kind == frame_kind::leave) {
    heard_leave_ = true;
    return true;
  }
  if (head_.kind == frame_kind::heartbeat) asked_ = true;
  if (is_between_links()) return true;
  if (up_ == nullptr) return true;
  const destination_buffer where = up_->begin(peer_, head_);
  if (stopped_) return false;
  if (up_ == nullptr) return true;
  where_ = where;
  next_ = where.at;
  to_store_ = where.at != nullptr ? std::min(where.room, to_come_) : 0;
  return true;
}

// So many bytes of payload have come, the first `stored` of which are in their place.
void inbox::count_in(const void* payload, std::size_t bytes, std::size_t stored) noexcept {
  if (way_.checked) checksum_ = base::crc32c({static_cast<const std::uint8_t*>(payload), bytes}, checksum_);
  next_ += stored;
  to_store_ -= stored;
  to_come_ -= bytes;
}

// Returns false if the payload is not what the peer has sent.
bool inbox::end_frame() noexcept {
  if (way_.checked && checksum_ != way_.checksum) {
    complaint_ = "a frame whose payload has a wrong checksum";
    return false;
  }
  in_frame_ = false;
  if (up_ != nullptr && head_.kind != frame_kind::leave && !is_between_links())
    up_->end(peer_, head_, where_);
  return true;
}

bool inbox::redirect(void* owner, const destination_buffer& whole) noexcept {
  if (!in_frame_ || where_.owner != owner) return false;
  const destination_buffer instead = part_of(whole, head_);
  const std::size_t come = static_cast<std::size_t>(payload_bytes(head_)) - to_come_;
  const std::size_t here = std::min({come, where_.room, instead.room});
  if (here > 0) std::memcpy(instead.at, where_.at, here);
  where_ = instead;
  to_store_ = instead.room > come ? std::min(instead.room - come, to_come_) : 0;
  next_ = to_store_ > 0 ? instead.at + come : nullptr;
  return true;
}

void inbox::mute() noexcept {
  up_ = nullptr;
  where_ = destination_buffer{};
  to_store_ = 0;
}

void inbox::stop() noexcept {
  mute();
  stopped_ = true;
}

}  // namespace tutti::transport::tcp
