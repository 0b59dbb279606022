// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.hpp"
#include "transport/shm/shm_transport.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>

namespace tutti::transport::shm {
namespace {

constexpr int frames_per_poll = 32;
constexpr std::size_t copied_per_poll = 4 * slice_bytes;  // as bytes_per_turn, for copies in this process
// For the parent of a dead process to reap it.
constexpr auto patience_with_parent = std::chrono::milliseconds(5);

}  // namespace

shm_link::shm_link(shm_transport& owner, int peer) noexcept
    : peer_link(owner, peer, phase::idle), owner_(owner) {}

bool shm_link::submit(outgoing& o) noexcept {
  if (at_ == phase::connected) {
    if (o.head.kind == frame_kind::data) {
      if (!has_queue() && write_slices(o)) return true;
      data_.push_back(o);
    } else {
      if (messages_.empty() && write_message(o)) {
        notify();
        return true;
      }
      messages_.push_back(o);
    }
    // A parked loop has not asked the peer to report room.
    owner_.wake();
    return false;
  }
  if (at_ == phase::closed && owner_.leaving()) return false;
  // A closed link keeps the frame until work() hands it back: never from inside submit().
  (o.head.kind == frame_kind::data ? data_ : messages_).push_back(o);
  if (at_ == phase::idle) {
    owner_.connect(*this);
  } else if (at_ == phase::closed) {
    owner_.activate(*this);
  }
  return false;
}

bool shm_link::send_now(const frame& head, const std::byte* payload) noexcept {
  if (at_ != phase::connected || !messages_.empty()) return false;
  if (writer_.in_parts(head)) return write_parts(head, payload);
  if (!writer_.write_message(head, payload)) return false;
  notify();
  return true;
}

cancel_result shm_link::cancel(outgoing& o) noexcept {
  o.unlink();
  const bool arrived = o.shown != 0 && shown_.hide(o.shown);
  o.shown = 0;
  return arrived ? cancel_result::arrived : cancel_result::gone;
}

// ---- messages that the receiver reads itself ----

bool shm_link::sends_eagerly(const void* data, std::size_t bytes) const noexcept {
  return bytes <= copied_twice_bytes || (bytes <= eager_limit_bytes && !base::find_shared(data, bytes));
}

bool shm_link::write_message(outgoing& o) noexcept {
  if (writer_.in_parts(o.head)) return write_parts(o.head, o.payload);
  if (o.head.kind == frame_kind::rts && o.shown == 0) show(o);
  return writer_.write_message(o.head, o.payload);
}

// All of them or none: a message that waits for room has not begun to leave, and can be taken back.
bool shm_link::write_parts(const frame& head, const std::byte* payload) noexcept {
  if (!writer_.has_room_for_parts(head)) return false;
  for (std::uint64_t at = 0; at < head.length;) {
    at += writer_.write_part(head, payload, at);
    notify();
  }
  return true;
}

void shm_link::take_part(const channel_reader::item& part) noexcept {
  if (part.part_begin == 0) where_ = owner_.up().begin(peer_, part.head);
  if (at_ != phase::connected) return;
  if (part.part_begin < where_.room)
    base::copy_out(where_.at + part.part_begin, part.payload,
                   std::min(part.part_bytes, where_.room - part.part_begin));
  come_ = part.part_begin + part.part_bytes;
  if (come_ < part.head.length) return;
  come_ = 0;
  owner_.up().end(peer_, part.head, where_);
}

redirect_result shm_link::redirect_destination(void* owner, const destination_buffer& instead) noexcept {
  if (come_ == 0 || where_.owner != owner) return redirect_result::none;
  move_destination(where_, come_, instead, frame{.kind = frame_kind::eager});
  return redirect_result::moved;
}

// If the message lies in memory that the peer can map, the rts frame says so. If anything is missing, it is
// an ordinary rts frame.
void shm_link::show(outgoing& o) noexcept {
  const auto place = base::find_shared(o.payload, o.head.length);
  if (!place || !offer(*place)) return;
  o.shown = shown_.show(place->region, place->offset);
  o.head.other_transfer_id = o.shown;
}

// Once per region. The descriptor is in the peer's socket before the first rts frame that needs it is in the
// peer's memory.
bool shm_link::offer(const base::shared_place& place) noexcept {
  if (at_ != phase::connected) return false;
  if (std::ranges::find(offered_, place.region) != offered_.end()) return true;
  if (!send_descriptors(socket_.get(), {&place.fd, 1}, {place.region, place.region_bytes})) return false;
  offered_.push_back(place.region);
  return true;
}

void shm_link::take_offers() noexcept {
  for (;;) {
    passed offer = receive_descriptors(socket_.get());
    if (offer.is == passed::outcome::nothing) return;
    if (offer.is != passed::outcome::all) {
      hung_up_ = true;
      return;
    }
    regions_.add(offer.label, std::move(offer.descriptors[0]));
  }
}

const std::byte* shm_link::find_memory(std::uint64_t region, std::uint64_t offset,
                                       std::uint64_t bytes) noexcept {
  if (at_ == phase::connected && !regions_.knows(region)) take_offers();
  return regions_.find(region, offset, bytes);
}

std::byte* shm_link::find_writable(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return find_memory(region, offset, bytes) != nullptr ? regions_.find_writable(region, offset, bytes)
                                                       : nullptr;
}

bool shm_link::fetch(const frame& rts, std::uint64_t transfer_id) noexcept {
  if (at_ != phase::connected || owner_.leaving() || rts.other_transfer_id == 0 || reads_.full())
    return false;
  shown_message message(inbox_.header(), rts.other_transfer_id);
  const auto place = message.begin();
  if (!place) return false;  // taken back: the sender says so when it is asked for the message
  const std::byte* from = find_memory(place->region, place->offset, rts.length);
  if (from == nullptr) {
    message.give_back();
    return false;
  }
  reads_.start(rts, message, from, transfer_id);
  owner_.wake();
  return true;
}

// ---- connecting and moving frames ----

void shm_link::attach(base::unique_fd socket, base::unique_fd doorbell, base::unique_fd segment) {
  const auto& info = owner_.info();
  outbox_.emplace(std::move(segment), info.id, peer_, info.rank);
  inbox_ = owner_.own().open_channel(peer_);
  // Nothing that may fail follows.
  watch_ = owner_.backend().watch(socket.get(), *this);
  reader_ = channel_reader(inbox_);
  writer_ = channel_writer(outbox_->mine());
  shown_ = shown_messages(outbox_->mine().header());
  socket_ = std::move(socket);
  doorbell_ = std::move(doorbell);
  declined_.reset();
  at_ = phase::connected;
  flush();
}

void shm_link::notify() noexcept {
  // Pairs with the fence in shm_transport::arm(): either this side sees that the peer sleeps, or the peer
  // sees the line.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& armed = outbox_->header().armed;
  if (armed.load(std::memory_order_relaxed) == 0 || !doorbell_) return;
  if (armed.exchange(0, std::memory_order_acq_rel) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(doorbell_.get(), &one, sizeof one);
}

bool shm_link::write_slices(outgoing& o) noexcept {
  std::size_t copied = 0;
  while (o.progress < o.head.length && copied < copied_per_poll) {
    const std::uint64_t before = o.progress;
    if (!writer_.write_slice(o)) break;
    copied += o.progress - before;
    // notify() after every slice: the peer copies it out while the next is copied in.
    notify();
  }
  return o.progress >= o.head.length;
}

bool shm_link::flush() noexcept {
  bool any = false;
  std::size_t copied = 0;
  while (outgoing* o = copied < copied_per_poll ? messages_.front() : nullptr) {
    if (!write_message(*o)) {
      if (writer_.request_room()) continue;
      break;
    }
    notify();
    any = true;
    if (o->head.kind == frame_kind::eager) copied += o->head.length;
    messages_.pop_front();
    o->done(*o, true);
  }
  // While a message waits for room, slices would take it.
  if (outgoing* o = any || messages_.empty() ? data_.front() : nullptr) {
    const std::uint64_t before = o->progress;
    const bool whole = write_slices(*o);
    any |= o->progress != before;
    if (whole) {
      data_.pop_front();
      o->done(*o, true);
    } else if (o->progress == before && writer_.request_room()) {
      any = true;
    }
  }
  // Counted once per stall.
  if (any || !has_queue()) {
    stalled_ = false;
  } else if (!std::exchange(stalled_, true)) {
    ++counters.stalls;
  }
  return any;
}

bool shm_link::read_some() noexcept {
  bool any = false;
  std::size_t copied = 0;
  channel_reader::item item;
  for (int i = 0; i < frames_per_poll && copied < copied_per_poll && reader_.peek(item); ++i) {
    if (std::exchange(any, true)) reader_.fetch_ahead();
    if (item.head.kind == frame_kind::leave) {
      peer_leaves_ = true;
      reader_.release();
      continue;
    }
    if (owner_.leaving()) {
      reader_.release();
      continue;
    }
    if (item.head.kind == frame_kind::cancel) reads_.note_cancel(item.head);
    if (item.part_bytes > 0) {
      copied += item.part_bytes;
      take_part(item);
    } else {
      if (item.payload != nullptr) copied += item.head.length;
      owner_.up().deliver(peer_, item.head, item.payload);
    }
    reader_.release();
    if (at_ != phase::connected) return true;
  }
  if (reader_.is_to_publish() && reader_.publish()) notify();
  if (reader_.broken())
    fail(errc::protocol,
         owner_.describe(peer_) +
             " wrote something into shared memory that no tutti of this version writes; do all ranks run the "
             "same build?");
  return any;
}

bool shm_link::move() noexcept {
  writer_.turn();
  bool any = read_some();
  if (at_ == phase::connected && reads_.busy()) {
    if (owner_.leaving()) {
      reads_.clear();
    } else if (outgoing* const fin = reads_.step(owner_.up(), peer_)) {
      if (submit(*fin)) fin->done(*fin, true);
    }
    any = true;
  }
  if (at_ == phase::connected && has_queue()) any |= flush();
  // All that the peer wrote before its end has been read.
  if (at_ == phase::connected && hung_up_ && !reader_.has_next() && !reads_.busy()) any |= end_of_peer();
  return any;
}

// Returns false if it is not yet known how the peer ended: a connection closes a moment before its process
// has ended.
bool shm_link::end_of_peer() noexcept {
  if (peer_leaves_) {
    fail(errc::peer_left, owner_.describe(peer_) + " has finished and left");
    return true;
  }
  if (!process_) {
    process_.emplace(socket_.get());
    ask_until_ = core::clock::now() + patience_with_parent;
  }
  const std::optional<int> status = process_->status();
  if (!status && process_->may_tell() && core::clock::now() < ask_until_) return false;
  fail(errc::peer_failed, end_text(owner_.describe(peer_), status));
  return true;
}

bool shm_link::prepare_sleep() noexcept {
  if (at_ != phase::connected) return false;
  if (reader_.publish()) notify();
  return reader_.has_next() || reads_.busy() || hung_up_ || (has_queue() && writer_.request_room());
}

void shm_link::on_ready(bool readable, bool) noexcept {
  if (readable && at_ == phase::connected) take_offers();
}

peer_health shm_link::examine(const health_check& l) noexcept {
  using condition = peer_health::condition;
  if (at_ != phase::connected) return {};
  const segment_header& there = outbox_->header();
  const core::duration::rep heartbeat = there.heartbeat.load(std::memory_order_relaxed);
  const bool first = !std::exchange(examined_, true);
  const core::time_point before = std::exchange(checked_, l.now);
  const bool turned = std::exchange(heartbeat_, heartbeat) != heartbeat;
  if (first || turned || l.again) {
    // Ranks of one host read one clock. If they do not, it was since the last check.
    const core::time_point said = std::min(core::time_point(core::duration(heartbeat)), l.now);
    heartbeat_at_ = l.again ? l.now : first ? said : std::max(said, before);
  }
  const core::duration since = l.now - heartbeat_at_;
  if (l.again || (turned && !first)) return {condition::well, {}};
  if (there.armed.load(std::memory_order_relaxed) != 0) return {condition::resting, since};
  return {condition::not_turning, since};
}

void shm_link::disconnect(bool) noexcept {
  if (watch_ != 0) owner_.backend().unwatch(std::exchange(watch_, 0));
  // A peer that is reading must not complete: the sender will soon have its buffer back.
  shown_.hide_all();
  reads_.clear();
  come_ = 0;
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
  doorbell_.reset();
}

}  // namespace tutti::transport::shm
