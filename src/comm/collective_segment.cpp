// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_segment.hpp"

#include "base/cycles.hpp"
#include "base/shared_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <tutti/detail/flow.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>

namespace tutti::comm {
namespace {

// The ring is larger than a core's own cache, which makes it fast: lines that stay in two cores' caches are
// transferred at a quarter of the speed.
constexpr std::size_t largest_ring = 4 * 1024 * 1024;

constexpr std::size_t ring_for(int ranks) noexcept {
  std::size_t bytes = largest_ring;
  for (int n = 4; n < ranks; n *= 2) bytes /= 2;
  return bytes;
}

// A reduction moves an element of each rank at a time at least, each from a multiple of 64 bytes on. They fit in half
// the ring, so that there is room for them at any position.
static_assert(collective_segment::most_element_bytes % 64 == 0);
static_assert(collective_segment::most_ranks * collective_segment::most_element_bytes <=
              ring_for(collective_segment::most_ranks) / 2);

// Polls of others' words before a wait goes to the loop: about twice the time in which a line comes from
// another core. Only if each rank has a core.
constexpr unsigned polls = 48;
// How many waits in a row may end without the loop, before timers, sockets and other work get their turn.
constexpr unsigned waits_at_once = 64;

}  // namespace

collective_segment::collective_segment(core::loop& loop, transport::neighbours& near,
                                       std::span<const int> members, int rank)
    : loop_(loop),
      near_(near),
      members_(members.begin(), members.end()),
      rank_(rank),
      size_(static_cast<int>(members.size())),
      ring_bytes_(ring_for(size_)),
      others_(members.size()) {}

collective_segment::~collective_segment() { release(); }

void collective_segment::release() noexcept {
  if (std::exchange(watched_, false)) loop_.engine().remove(*this);
  if (own_ == nullptr) return;
  own_progress().mark.store(0, std::memory_order_release);
  detail::free_shared_bytes(std::exchange(own_, nullptr));
}

// ---- making it ----

collective_segment::handle collective_segment::make_part() noexcept {
  try {
    if (!watched_) loop_.engine().add(*this);
    watched_ = true;
    own_ = static_cast<std::byte*>(detail::allocate_shared_bytes(ring_offset + ring_bytes_, ring_offset));
  } catch (const std::bad_alloc&) {
    return {};
  }
  const auto place = base::find_shared(own_, ring_offset + ring_bytes_);
  if (!place) return {};
  std::memset(own_, 0, ring_offset);
  new (own_) progress_words();
  own_progress().mark.store(loop_.engine().platform().random() | 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < slots; ++i) new (own_ + slot_offset(i)) slot();
  own_ring_ = own_ + ring_offset;
  other(rank_).part = own_;
  return handle{{place->region, place->offset}, own_progress().mark.load(std::memory_order_relaxed)};
}

bool collective_segment::show_part() noexcept { return show(own_, ring_offset + ring_bytes_).region != 0; }

bool collective_segment::find_part(int rank, const handle& theirs) noexcept {
  const int peer = members_[static_cast<std::size_t>(rank)];
  known_rank& it = other(rank);
  it.part = find_memory(rank, theirs, ring_offset + ring_bytes_);
  it.sleeps = near_.sleeps(peer);
  it.mark = theirs.mark;
  return it.part != nullptr && it.sleeps != nullptr;
}

void collective_segment::decide(bool usable) noexcept {
  state_ = usable ? condition::usable : condition::unusable;
  if (!usable) release();
}

void collective_segment::leave(bool failed) noexcept {
  if (own_ == nullptr) return;
  own_progress().finished.store(all_operations, std::memory_order_release);
  if (failed) operation_ = all_operations;
}

bool collective_segment::can_go() const noexcept {
  if (own_ == nullptr) return true;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    // As long as this rank lacks the part of one, the segment is usable nowhere.
    if (other(r).part == nullptr) return true;
    const progress_words& theirs = progress_of(r);
    const bool finished = theirs.finished.load(std::memory_order_acquire) >= operation_;
    // A rank that has returned its part reads nothing any more.
    const bool returned = theirs.mark.load(std::memory_order_acquire) != other(r).mark;
    if (!finished && !returned) return false;
  }
  return true;
}

// ---- turns ----

void collective_segment::resumption::await_suspend(std::coroutine_handle<> h) noexcept {
  waiting_ = h;
  on_done = [](core::completion& a) noexcept {
    detail::resume_bounded(static_cast<resumption&>(a).waiting_);
  };
}

void collective_segment::turn::finish() noexcept {
  static_cast<base::list_hook<segment_turn_tag>&>(*this).unlink();
  if (turn* const next = segment_.turns_.front(); next != nullptr && next->waiting_)
    segment_.loop_.engine().complete(*next);
}

void collective_segment::begin(std::uint32_t sequence, const p2p::fingerprint& print) noexcept {
  ++operation_;
  const auto before = std::bit_cast<std::array<std::uint64_t, 2>>(print_);
  history_ = (std::rotl(history_, 29) ^ before[0] ^ std::rotl(before[1], 32)) * 0x9e3779b97f4a7c15ULL;
  sequence_ = sequence;
  print_ = print;
  begun_at_ = position_;
}

void collective_segment::finish() noexcept {
  progress_words& mine = own_progress();
  mine.consumed.store(position_, std::memory_order_release);
  mine.finished.store(operation_, std::memory_order_release);
  owes_notice_ = true;
  // The slot and the place in the stream of the next operation, if it is like this one.
  base::fetch_to_write(own_ + slot_offset(operation_ + 1), sizeof(slot));
  if (const std::size_t bytes = std::exchange(written_, 0); bytes > slot_payload)
    base::fetch_to_write(at(position_), bytes);
  loop_.wake();  // called by a handler of Asio's, the loop may be parked
}

// ---- slots and stream ----

void collective_segment::arrive() noexcept {
  slot& mine = own_slot();
  mine.sequence = sequence_;
  mine.print = print_;
  mine.history = history();
  mine.vote.store(0, std::memory_order_relaxed);
  mine.stamp.store(operation_, std::memory_order_release);
  notify();
}

collective_segment::location collective_segment::show(const void* data, std::size_t bytes) noexcept {
  const auto found = base::find_shared(data, bytes);
  if (!found) return {};
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && !near_.show(members_[static_cast<std::size_t>(r)], *found)) return {};
  return location{found->region, found->offset};
}

void collective_segment::withdraw() noexcept {
  if (state_ != condition::usable) return;
  progress_words& mine = own_progress();
  mine.withdrawn.store(mine.finished.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // Comes before all that the program then writes, also past the caches.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool collective_segment::has_withdrawn(int rank) const noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);  // after what was read in place
  const std::uint64_t first = progress_of(rank).withdrawn.load(std::memory_order_relaxed);
  return first != 0 && first <= operation_;
}

void collective_segment::vote(bool yes) noexcept {
  own_slot().vote.store(static_cast<std::uint8_t>(yes ? opinion::yes : opinion::no),
                        std::memory_order_release);
  notify();
}

collective_segment::arrival collective_segment::check_arrival(int rank) noexcept {
  const slot& theirs = slot_of(rank);
  if (theirs.stamp.load(std::memory_order_acquire) != operation_) return arrival::not_yet;
  // Not every rank waits in each operation. Differences in operations that no rank compared show here.
  if (theirs.sequence != sequence_ || theirs.print != print_ || theirs.history != history())
    return arrival::other;
  // Its earlier operations are over.
  known_rank& p = other(rank);
  p.finished = operation_ - 1;
  p.consumed = begun_at_;
  return arrival::here;
}

std::uint64_t collective_segment::take(std::size_t bytes) noexcept {
  const std::size_t padded = (bytes + 63) & ~std::size_t{63};
  const std::size_t offset = position_ % ring_bytes_;
  if (offset + padded > ring_bytes_) position_ += ring_bytes_ - offset;
  const std::uint64_t start = position_;
  position_ += padded;
  if (populated_ < ring_bytes_ && position_ > populated_) populate(position_);
  return start;
}

void collective_segment::populate(std::uint64_t end) noexcept {
  // Twice as much each time: few calls, and little memory for a communicator that moves little.
  constexpr std::size_t least = 32 * 1024, most = 512 * 1024;
  while (populated_ < ring_bytes_ && populated_ < end) {
    const std::size_t bytes = std::min(std::clamp(populated_, least, most), ring_bytes_ - populated_);
    for (int r = 0; r < size_; ++r) base::populate(at(r, populated_), bytes, r == rank_);
    populated_ += bytes;
  }
}

int collective_segment::room_for(std::uint64_t end) noexcept {
  for (int r = 0; r < size_; ++r) {
    known_rank& p = other(r);
    if (r == rank_ || (p.finished + slots >= operation_ && p.consumed + ring_bytes_ >= end)) continue;
    const progress_words& w = progress_of(r);
    p.finished = w.finished.load(std::memory_order_acquire);
    p.consumed = w.consumed.load(std::memory_order_acquire);
    if (p.finished + slots < operation_ || p.consumed + ring_bytes_ < end) return r;
  }
  return -1;
}

void collective_segment::notify() noexcept {
  owes_notice_ = false;
  // Pairs with the fence in the transport's arming. Either this rank sees that the peer sleeps, or the peer
  // sees the written words.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int r = 0; r < size_; ++r) {
    const auto* const sleeps = other(r).sleeps;
    if (sleeps != nullptr && sleeps->load(std::memory_order_relaxed) != 0)
      near_.notify(members_[static_cast<std::size_t>(r)]);
  }
}

// ---- waiting ----

void collective_segment::rank_gone(int rank, errc why, const std::string& text) noexcept {
  departed_.resize(others_.size());
  p2p::departure& known = departed_[static_cast<std::size_t>(rank)];
  if (known.code == errc::success) known = {why, text};
  loop_.wake();
}

bool collective_segment::poll(wait& w) noexcept {
  if (at_once_ == 0) return false;  // through the loop, even if ready
  missing_ = w.ready_(w.context_);
  if (missing_ >= 0 && !loop_.yields()) {
    for (unsigned i = 0; i < polls && missing_ >= 0; ++i) {
      base::relax();
      missing_ = w.ready_(w.context_);
    }
  }
  if (missing_ >= 0) return false;
  --at_once_;
  return true;
}

// Of the rank that is waited for, or of one that has died and will not arrive at this operation; null: there is none.
const p2p::departure* collective_segment::why_in_vain() const noexcept {
  for (int r = 0; std::cmp_less(r, departed_.size()); ++r) {
    const p2p::departure& gone = departed_[static_cast<std::size_t>(r)];
    if (gone.code == errc::success) continue;
    const bool arrived = slot_of(r).stamp.load(std::memory_order_acquire) == operation_;
    if (r == missing_ || (gone.code != errc::peer_left && !arrived)) return &gone;
  }
  return nullptr;
}

bool collective_segment::poll() noexcept {
  at_once_ = waits_at_once;
  if (owes_notice_) notify();
  if (waiting_ == nullptr) return false;
  missing_ = waiting_->ready_ != nullptr ? waiting_->ready_(waiting_->context_) : -1;
  if (missing_ >= 0) {
    const p2p::departure* const gone = why_in_vain();
    if (gone == nullptr) return false;
    waiting_->set_failure(gone->code, gone->text);
  }
  wait* const w = waiting_;
  waiting_ = nullptr;
  loop_.engine().complete(*w);
  return true;
}

}  // namespace tutti::comm
