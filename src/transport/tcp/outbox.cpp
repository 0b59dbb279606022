// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/outbox.hpp"

#include "base/crc32c.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace tutti::transport::tcp {
namespace {

constexpr std::size_t pieces_per_call = 16;
// Less with checksums: bytes that the kernel does not take are summed again in the next call.
constexpr std::size_t checked_bytes_per_call = slice_bytes;

}  // namespace

struct outbox::batch {
  batch(bool with_checksums, std::uint8_t first_number) noexcept
      : checksums(with_checksums), number(first_number) {}

  const bool checksums;
  std::uint8_t number;  // of the next frame
  std::size_t count = 0;
  std::size_t bytes = 0;
  int parts = 0;
  piece pieces[pieces_per_call];
  header headers[pieces_per_call];
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
  void add(const piece& p, const header& h) noexcept {
    pieces[count] = p;
    headers[count] = h;
    add_part(headers[count].data() + (header_bytes - p.header_left), p.header_left);
    add_part(p.payload, p.payload_left);
    ++count;
  }
  // Adds the payload of `f` from byte `from`, as much of it as one frame may have.
  std::size_t add(outgoing& f, std::uint64_t from) noexcept {
    frame head = f.head;
    std::uint64_t promised = payload_bytes(head);
    if (head.kind == frame_kind::data) {
      promised = std::min<std::uint64_t>(head.length - from, slice_bytes);
      head.length = promised;
      head.other_transfer_id += from;
    }
    const auto length = static_cast<std::size_t>(promised);
    const std::byte* const payload = length > 0 ? f.payload + from : nullptr;
    passage way;
    way.number = number++;
    way.checked = checksums && length > 0;
    if (way.checked) way.checksum = base::crc32c({reinterpret_cast<const std::uint8_t*>(payload), length});
    header h;
    encode(head, h, way);
    add(piece{&f, payload, length, length, header_bytes}, h);
    return length;
  }
};

void outbox::push(outgoing& f) noexcept {
  f.progress = 0;
  (is_long(f) ? long_data_ : messages_).push_back(f);
}

void outbox::gather(batch& b) noexcept {
  if (cut_short_.left() > 0) b.add(cut_short_, cut_short_header_);
  const outgoing* const begun = cut_short_.of;
  for (outgoing* f = messages_.front(); f != nullptr && !b.full(); f = messages_.after(*f))
    if (f != begun) b.add(*f, 0);
  for (outgoing* f = long_data_.front(); f != nullptr && !b.full(); f = long_data_.after(*f)) {
    std::uint64_t from = f->progress + (f == begun ? cut_short_.promised : 0);
    while (from < f->head.length && !b.full()) from += b.add(*f, from);
  }
}

void outbox::finish(const piece& p, list& left) noexcept {
  outgoing* const f = p.of;
  if (f == nullptr) return;
  f->progress += p.promised;
  if (is_long(*f) && f->progress < f->head.length) return;
  f->unlink();
  left.push_back(*f);
}

void outbox::settle(batch& b, std::size_t sent, list& left) noexcept {
  cut_short_ = piece{};
  for (std::size_t i = 0; i < b.count; ++i) {
    piece p = b.pieces[i];
    const bool begun_before = p.left() < header_bytes + p.promised;
    const bool begun = sent > 0 || begun_before;
    if (begun && !begun_before) ++next_number_;
    if (sent < p.left()) {
      if (!begun) return;
      const std::size_t of_header = std::min(sent, p.header_left);
      p.header_left -= of_header;
      p.payload_left -= sent - of_header;
      if (p.payload != nullptr) p.payload += sent - of_header;
      cut_short_ = p;
      cut_short_header_ = b.headers[i];
      return;
    }
    sent -= p.left();
    finish(p, left);
    if (p.of == nullptr) copy_.reset();
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
  if (cut_short_.payload_left == 0) return becomes;
  copy_.reset(new (std::nothrow) std::byte[cut_short_.payload_left]);
  if (!copy_) {
    cut_short_ = piece{};
    return std::nullopt;
  }
  std::memcpy(copy_.get(), cut_short_.payload, cut_short_.payload_left);
  cut_short_.payload = copy_.get();
  return becomes;
}

void outbox::clear(list& rest) noexcept {
  cut_short_ = piece{};
  copy_.reset();
  rest.splice_back(messages_);
  rest.splice_back(long_data_);
}

}  // namespace tutti::transport::tcp
