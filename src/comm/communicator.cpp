// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

namespace tutti {

int communicator::rank() const noexcept { return state_ ? state_->rank() : -1; }
int communicator::size() const noexcept { return state_ ? state_->size() : 0; }
const std::string& communicator::name() const noexcept {
  static const std::string none = "(no communicator)";
  return state_ ? state_->name() : none;
}

void communicator::abort() {
  if (!state_ || state_->detached()) return;
  state_->require_loop_thread("abort");
  const std::string why =
      fmt::format("{} was aborted by {}, which called abort(); its own output may say why", name(),
                  state_->describe(rank()));
  state_->fail(errc::cancelled, why, p2p::subject::other, true, p2p::extent::children);
}

std::vector<int> communicator::failed_ranks() const {
  if (!state_ || state_->detached()) return {};
  state_->require_loop_thread("failed_ranks");
  return state_->failed_ranks();
}

std::vector<int> communicator::suspected_ranks() const {
  if (!state_ || state_->detached()) return {};
  state_->require_loop_thread("suspected_ranks");
  return state_->suspected_ranks();
}

// ---- rejoin: a new epoch, of all ranks again or of those that are there ----

namespace {

// By value: the handles keep the old world alive while the new one is made.
task<communicator> meet_again(comm::communicator_state* state, communicator old) {
  if (state == nullptr)
    throw error(errc::invalid_argument, "rejoin: this communicator has no members here (it is empty)");
  if (state->detached())
    throw error(errc::shut_down, fmt::format("rejoin on {}: the runtime has ended", old.name()));
  state->require_loop_thread("rejoin");
  comm::world& w = state->of_world();
  if (!w.meet_again)
    throw error(errc::not_supported,
                fmt::format("rejoin on {}: nothing starts ranks of this job anew; start it with tutti-run "
                            "--on-failure restart or --nnodes MIN:MAX, or go on without them with shrink()",
                            old.name()));
  co_return co_await w.meet_again(w);
}

}  // namespace

task<communicator> communicator::rejoin() const { return meet_again(state_.get(), *this); }

int newcomers(const communicator& world) {
  const comm::communicator_state* const state = detail::communicator_access::state_of(world);
  if (state == nullptr)
    throw error(errc::invalid_argument, "newcomers: this communicator has no members here (it is empty)");
  if (state->detached())
    throw error(errc::shut_down, fmt::format("newcomers of {}: the runtime has ended", world.name()));
  state->require_loop_thread("newcomers");
  const auto& watch = state->of_world().newcomers;
  return watch ? watch->count() : 0;
}

}  // namespace tutti
