// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <exception>
#include <tutti/detail/operation_state.hpp>
#include <utility>

namespace tutti::comm {

communicator_state::communicator_state(communicator_home& home, communicator_numbers numbers,
                                       std::string name, std::vector<int> members)
    : home_(&home),
      loop_(home.loop()),
      executor_(loop_.executor()),
      endpoint_(home.endpoint()),
      recorder_(loop_.recorder()),
      numbers_(numbers),
      group_(home.info(), std::move(name), std::move(members)),
      record_place_(recorder_.open_communicator(numbers_.id, rank(), size(), group_.name())),
      pending_(loop_.engine(), home.info().timeout, &check_waiting, this),
      failure_(*this, loop_, endpoint_, group_, order_, pending_),
      progress_(loop_, endpoint_, numbers_.collectives(), group_, order_, failure_, segments_) {
  if (transport::neighbours* const near = home.memory_of(group_.members())) {
    std::vector<std::string> caches;
    for (const int member : group_.members()) caches.push_back(home.info().record(member).cache);
    segments_ = host_segments::make(loop_, *near, group_.members(), caches, rank());
  }
  endpoint_.open_context(numbers_.messages(), *this);
  endpoint_.open_context(numbers_.collectives(), *this);
  endpoint_.control().tell_early_failure(numbers_.messages(), *this);
}

communicator_state::~communicator_state() = default;

void communicator_state::rename(std::string name) {
  group_.rename(std::move(name));
  recorder_.close_communicator(record_place_);
  record_place_ = recorder_.open_communicator(numbers_.id, rank(), size(), group_.name());
}

void communicator_state::require_loop_thread(const char* call) const {
  if (!loop_.on_this_thread())
    throw error(errc::wrong_thread,
                fmt::format("{} on {}: {}", call, group_.name(), core::wrong_thread_text()));
}

// ---- collectives ----

std::uint32_t communicator_state::next_sequence(const p2p::fingerprint& mine) noexcept {
  const collective_order::started_collective made = order_.start(mine);
  recorder_.called(record_place_, made.sequence);
  if (made.differs_from >= 0) progress_.mismatch(made.differs_from, made.sequence, mine, made.theirs);
  return made.sequence;
}

bool communicator_state::admit(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept {
  if (failure_.ends(sequence) && !order_.is_running(sequence)) return false;
  const p2p::fingerprint* const mine = order_.compare(peer, sequence, theirs);
  if (mine == nullptr) return true;
  progress_.mismatch(peer, sequence, *mine, theirs);
  return false;
}

// ---- the ends of others ----

void communicator_state::peer_closed(int peer, errc why, const std::string& text) noexcept {
  const int rank = group_.rank_of(peer);
  if (rank < 0) return;
  const std::string text_here = text + group_.number_here(peer);
  if (segments_ != nullptr) segments_->rank_gone(rank, why, text_here);
  // After a failure only collectives remain for which the rank that failed it said that it needs nothing
  // more. Those that need something from `peer` end by that.
  if (why != errc::peer_left && !failure_.failed()) failure_.lost_member(why, text_here);
}

void communicator_state::closed_remotely(int peer) noexcept {
  const int rank = group_.rank_of(peer);
  if (rank < 0) return;
  if (segments_ != nullptr) segments_->rank_gone(rank, errc::peer_left, closed_text(peer));
  endpoint_.closed_by(numbers_.messages(), peer);
  endpoint_.closed_by(numbers_.collectives(), peer);
}

std::string communicator_state::closed_text(int peer) const {
  return fmt::format(
      "{} has closed {}, on which this rank waits for it: its last handle there has gone; keep one on every "
      "rank until all are done",
      group_.describe(group_.rank_of(peer)), group_.name());
}

// Connections are made when something is sent. A rank that only waits for another has none, and would not
// hear of its end. The other may also have closed this communicator already.
void communicator_state::check_waiting(void* self) noexcept {
  auto& c = *static_cast<communicator_state*>(self);
  if (c.detached() || (c.failure_.failed() && c.order_.running().empty())) return;
  c.progress_.ask_who_closes(c.numbers_.messages(), c.pending_.take_expects_anyone());
}

// ---- those that it was made from, and that were made from it ----

failure_spread* communicator_state::parent() noexcept {
  communicator_state* const c = numbers_.is_child() ? home_->communicators().find(numbers_.parent) : nullptr;
  return c != nullptr ? &c->failure_ : nullptr;
}

void communicator_state::for_each_child(const std::function<void(failure_spread&)>& f) noexcept {
  home_->communicators().for_each([&](communicator_state& c) {
    if (&c != this && c.numbers_.parent == numbers_.id) f(c.failure_);
  });
}

// ---- lifetime ----

void communicator_state::release_reference() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const std::lock_guard lock(ending_);
    // An exception that destroys the handle may be the end of main. This rank then fails the communicator
    // (world::fail) before it closes it, so that the others hear of the failure first.
    const bool unwinds = std::uncaught_exceptions() > 0;
    if (home_ != nullptr && (unwinds || !loop_.on_this_thread())) {
      // Closed when the handler is destroyed: after its call, or without one if the runtime has ended.
      using closed_at_end = std::unique_ptr<communicator_state, void (*)(communicator_state*)>;
      boost::asio::post(
          loop_.executor(),
          [c = closed_at_end(this, [](communicator_state* of) { of->last_reference_gone(); })] {});
      return;
    }
  }
  last_reference_gone();
}

void communicator_state::last_reference_gone() noexcept {
  {
    const std::lock_guard other_thread_is_done(ending_);
  }
  if (home_ == nullptr) {
    delete this;
    return;
  }
  attributes_.clear();  // closes the side channels
  if (failure_.failed())
    endpoint_.control().keep_failure(numbers_.messages(), failure_.to_tell(p2p::extent::one));
  announce_closing();
  close_contexts();
  home_->close(*this, std::move(segments_));
}

void communicator_state::announce_closing() noexcept {
  // A rank that closes its last communicator leaves the world, and says that instead.
  if (home_->communicators().size() <= 1) return;
  for (const int member : group_.members())
    if (member != group_.world_rank(rank()) && endpoint_.peers().in_touch(member))
      endpoint_.control().announce_closing(numbers_.collectives(), member);
}

std::unique_ptr<host_segments> communicator_state::detach() noexcept {
  failure_.shut_down();
  pending_.stop();
  progress_.shut_down();
  close_contexts();
  group_.forget_world();
  const std::lock_guard lock(ending_);
  home_ = nullptr;
  return std::move(segments_);
}

void communicator_state::close_contexts() noexcept {
  recorder_.close_communicator(record_place_);
  endpoint_.close_context(numbers_.messages());
  endpoint_.close_context(numbers_.collectives());
}

}  // namespace tutti::comm

namespace tutti::detail {

boost::asio::io_context::executor_type executor_of(const communicator_state& state) noexcept {
  return state.executor();
}

}  // namespace tutti::detail
