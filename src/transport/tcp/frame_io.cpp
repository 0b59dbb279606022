// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame_io.hpp"

#include "base/crc32c.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace tutti::transport::tcp {
namespace {

constexpr std::size_t pieces_per_call = 16;
// Less with checksums: bytes that the kernel does not take are summed again in the next call.
constexpr std::size_t checked_bytes_per_call = slice_bytes;

// A message of 512 KiB took half as long again in two stripes (perf/NOTES.md).
constexpr std::uint64_t shortest_stripe = 2 * slice_bytes;

constexpr std::size_t staging_bytes = std::size_t{64} * 1024;
// A long payload is most often followed by the next slice of the same message. Reading only its header along,
// not 64 KiB of it, avoids copying that much twice.
constexpr std::size_t long_payload_bytes = std::size_t{16} * 1024;
constexpr std::size_t behind_long_payload_bytes = std::size_t{4} * 1024;

}  // namespace

// ---- outbox ----

struct outbox::batch {
  batch(bool with_checksums, std::uint8_t first_number) noexcept
      : checksums(with_checksums), number(first_number) {}

  const bool checksums;
  std::uint8_t number;  // of the next frame
  std::size_t count = 0;
  std::size_t bytes = 0;
  int parts = 0;
  piece pieces[pieces_per_call];
  iovec vector[2 * pieces_per_call];

  bool full() const noexcept {
    return count == pieces_per_call || bytes >= (checksums ? checked_bytes_per_call : bytes_per_call);
  }

  void add_part(const void* at, std::size_t length) noexcept {
    if (length == 0) return;
    vector[parts].iov_base = const_cast<void*>(at);
    vector[parts].iov_len = length;
    ++parts;
    bytes += length;
  }
  // The first piece: the rest of what the previous call started.
  void add(const piece& rest) noexcept {
    const piece& p = pieces[count++] = rest;
    const std::size_t of_header = std::min(p.sent, header_bytes);
    add_part(p.head.data() + of_header, header_bytes - of_header);
    add_part(p.payload + p.payload_sent(), p.promised - p.payload_sent());
  }
  // Adds the payload of `f` from byte `from`, as much of it as one frame may have.
  std::size_t add(outgoing& f, std::uint64_t from) noexcept {
    const frame head = next_slice(f.head, from, slice_bytes);
    const auto length = static_cast<std::size_t>(payload_bytes(head));
    const std::byte* const payload = length > 0 ? f.payload + from : nullptr;
    passage way;
    way.number = number++;
    way.checked = checksums && length > 0;
    if (way.checked) way.checksum = base::crc32c({reinterpret_cast<const std::uint8_t*>(payload), length});
    piece p{&f, payload, length, 0, {}};
    encode(head, p.head, way);
    add(p);
    return length;
  }
};

void outbox::push(outgoing& f) noexcept {
  f.progress = 0;
  (is_long(f, slice_bytes) ? long_data_ : messages_).push_back(f);
}

void outbox::gather(batch& b) noexcept {
  if (cut_short_.left() > 0) b.add(cut_short_);
  const outgoing* const begun = cut_short_.of;
  for (outgoing* f = messages_.front(); f != nullptr && !b.full(); f = messages_.after(*f))
    if (f != begun) b.add(*f, 0);
  for (outgoing* f = long_data_.front(); f != nullptr && !b.full(); f = long_data_.after(*f)) {
    std::uint64_t from = f->progress + (f == begun ? cut_short_.promised : 0);
    while (from < f->head.length && !b.full()) from += b.add(*f, from);
  }
}

void outbox::settle(batch& b, std::size_t sent, list& left) noexcept {
  cut_short_ = {};
  for (std::size_t i = 0; i < b.count; ++i) {
    piece& p = b.pieces[i];
    const std::size_t here = std::min(sent, p.left());
    if (p.sent == 0 && here > 0) ++next_number_;
    p.sent += here;
    sent -= here;
    if (p.left() > 0) {
      if (p.sent > 0) cut_short_ = p;
      return;
    }
    outgoing* const f = p.of;
    if (f == nullptr) {
      copy_.reset();
      continue;
    }
    f->progress += p.promised;
    if (is_long(*f, slice_bytes) && f->progress < f->head.length) continue;
    f->unlink();
    left.push_back(*f);
  }
}

outbox::outcome outbox::send(core::byte_stream& to, std::size_t budget, list& left) noexcept {
  while (!empty()) {
    if (budget == 0) return outcome::more;
    batch b(checksums_, next_number_);
    gather(b);
    const ssize_t sent = to.write(b.vector, static_cast<std::size_t>(b.parts));
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return outcome::blocked;
      error_ = errno;
      return outcome::broken;
    }
    const auto bytes = static_cast<std::size_t>(sent);
    sent_bytes_ += bytes;
    settle(b, bytes, left);
    // A short count means that the kernel's buffer is full, and promises an event as EAGAIN does.
    if (bytes < b.bytes) return outcome::blocked;
    budget -= std::min(budget, bytes);
  }
  return outcome::drained;
}

std::optional<cancel_result> outbox::cancel(outgoing& f) noexcept {
  f.unlink();
  if (cut_short_.of != &f) return cancel_result::gone;
  const bool ends = f.progress + cut_short_.promised >= payload_bytes(f.head);
  const cancel_result becomes = ends ? cancel_result::leaves : cancel_result::gone;
  cut_short_.of = nullptr;
  const std::size_t gone = cut_short_.payload_sent(), rest = cut_short_.promised - gone;
  if (rest == 0) return becomes;
  copy_.reset(new (std::nothrow) std::byte[rest]);
  if (!copy_) {
    cut_short_ = {};
    return std::nullopt;
  }
  std::memcpy(copy_.get(), cut_short_.payload + gone, rest);
  cut_short_.payload = copy_.get();
  cut_short_.promised = rest;
  cut_short_.sent -= gone;
  return becomes;
}

void outbox::clear(list& rest) noexcept {
  cut_short_ = {};
  copy_.reset();
  rest.splice_back(messages_);
  rest.splice_back(long_data_);
}

// ---- stripes ----

stripes::stripes() noexcept {
  for (stripe& p : by_connection_) {
    p.owner = this;
    p.head.kind = frame_kind::data;
    p.done = [](outgoing& self, bool) noexcept {
      auto& ended = static_cast<stripe&>(self);
      ended.owner->left(ended);
    };
  }
}

bool stripes::has(const outgoing& f) const noexcept {
  for (const outgoing* w = whole_.front(); w != nullptr; w = whole_.after(*w))
    if (w == &f) return true;
  return false;
}

void stripes::push(outgoing& f) noexcept {
  f.progress = 0;
  whole_.push_back(f);
}

bool stripes::next(std::size_t by, std::size_t among, outbox& out) noexcept {
  stripe& p = by_connection_[by];
  if (p.of != nullptr) return false;
  outgoing* f = whole_.front();
  while (f != nullptr && f->progress == f->head.length) f = whole_.after(*f);
  if (f == nullptr) return false;
  // Equal shares, in whole slices.
  const std::uint64_t share =
      (f->head.length + among * slice_bytes - 1) / (among * slice_bytes) * slice_bytes;
  const std::uint64_t bytes = std::clamp<std::uint64_t>(share, shortest_stripe, bytes_per_call);
  p.of = f;
  p.head = f->head;
  p.head.other_transfer_id += f->progress;
  p.head.length = std::min(bytes, f->head.length - f->progress);
  p.payload = f->payload + f->progress;
  f->progress += p.head.length;
  p.through = &out;
  out.push(p);
  return true;
}

void stripes::left(stripe& p) noexcept {
  outgoing& f = *std::exchange(p.of, nullptr);
  if (f.progress < f.head.length || std::ranges::count(by_connection_, &f, &stripe::of) > 0) return;
  f.unlink();
  f.done(f, true);
}

std::optional<cancel_result> stripes::cancel(outgoing& f) noexcept {
  f.unlink();
  bool leaves = f.progress == f.head.length;
  bool lost = false;
  for (stripe& p : by_connection_) {
    if (p.of != &f) continue;
    const std::optional<cancel_result> outcome = p.through->cancel(p);
    p.of = nullptr;
    lost |= !outcome;
    leaves &= outcome == cancel_result::leaves;
  }
  if (lost) return std::nullopt;
  return leaves ? cancel_result::leaves : cancel_result::gone;
}

void stripes::clear(outbox::list& rest) noexcept {
  for (stripe& p : by_connection_) {
    p.unlink();
    p.of = nullptr;
  }
  rest.splice_back(whole_);
}

// ---- inbox ----

void inbox::open() {
  if (!staging_) staging_.reset(new std::uint8_t[staging_bytes]);
}

inbox::outcome inbox::receive(core::byte_stream& from, std::size_t budget) noexcept {
  for (;;) {
    if (stopped_) return outcome::stopped;
    iovec parts[2];
    std::size_t count = 0;
    const std::size_t direct_room = to_store();
    if (direct_room > 0) parts[count++] = iovec{where_.at + come_, direct_room};
    const bool ends_long = direct_room == to_come() && direct_room >= long_payload_bytes;
    const std::size_t behind = (ends_long ? behind_long_payload_bytes : staging_bytes) - staged_;
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
    if (direct > 0) count_in(where_.at + come_, direct);
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
      const std::size_t here = std::min(to_come(), static_cast<std::size_t>(end - at));
      if (const std::size_t stored = std::min(here, to_store()); stored > 0)
        std::memcpy(where_.at + come_, at, stored);
      count_in(at, here);
      at += here;
      if (to_come() > 0) break;
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
  if (complaint_ == nullptr && data_only_ && head_.kind != frame_kind::data)
    complaint_ = "a frame of a kind that comes on the first connection only";
  if (complaint_ == nullptr && way_.number != next_number_)
    complaint_ = "a frame whose number is not the next: one is missing, or comes twice";
  if (complaint_ == nullptr && way_.checked != (checksums_ && payload_bytes(head_) > 0))
    complaint_ =
        checksums_ ? "a frame without a checksum of its payload" : "a checksum that was not agreed on";
  if (complaint_ != nullptr) return false;
  ++next_number_;
  checksum_ = 0;
  where_ = destination_buffer{};
  length_ = static_cast<std::size_t>(payload_bytes(head_));  // at most a slice
  come_ = 0;
  in_frame_ = true;
  if (head_.kind == frame_kind::leave) heard_leave_ = true;
  if (head_.kind == frame_kind::heartbeat) asked_ = true;
  if (is_between_links() || up_ == nullptr) return true;
  const destination_buffer where = up_->begin(peer_, head_);
  if (up_ != nullptr) where_ = where;
  return !stopped_;
}

void inbox::count_in(const void* payload, std::size_t bytes) noexcept {
  if (way_.checked) checksum_ = base::crc32c({static_cast<const std::uint8_t*>(payload), bytes}, checksum_);
  come_ += bytes;
}

// Returns false if the payload is not what the peer has sent.
bool inbox::end_frame() noexcept {
  if (way_.checked && checksum_ != way_.checksum) {
    complaint_ = "a frame whose payload has a wrong checksum";
    return false;
  }
  in_frame_ = false;
  if (up_ != nullptr && !is_between_links()) up_->end(peer_, head_, where_);
  return true;
}

bool inbox::redirect(void* owner, const destination_buffer& whole) noexcept {
  if (!in_frame_ || where_.owner != owner) return false;
  move_destination(where_, come_, whole, head_);
  return true;
}

void inbox::mute() noexcept {
  up_ = nullptr;
  where_ = destination_buffer{};
}

void inbox::stop() noexcept {
  mute();
  stopped_ = true;
}

}  // namespace tutti::transport::tcp
