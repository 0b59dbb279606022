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
  return state_ ? state_->group().name() : none;
}

void communicator::abort() {
  comm::communicator_state* const state = comm::living_state_of(*this, "abort");
  if (state == nullptr) return;
  const std::string why =
      fmt::format("{} was aborted by {}, which called abort(); its own output may say why", name(),
                  state->group().describe(rank()));
  state->failure().fail(errc::cancelled, why, p2p::subject::other, true, p2p::extent::children);
}

std::vector<int> communicator::failed_ranks() const {
  const comm::communicator_state* const state = comm::living_state_of(*this, "failed_ranks");
  return state == nullptr ? std::vector<int>() : state->failure().failed_ranks();
}

std::vector<int> communicator::suspected_ranks() const {
  const comm::communicator_state* const state = comm::living_state_of(*this, "suspected_ranks");
  std::vector<int> suspected;
  for (int r = 0; state != nullptr && r < state->size(); ++r)
    if (state->home().suspects(state->group().world_rank(r))) suspected.push_back(r);
  return suspected;
}

comm::communicator_state& comm::state_for(const communicator& c, const char* call) {
  if (communicator_state* const state = living_state_of(c, call)) return *state;
  if (c) throw error(errc::shut_down, fmt::format("{} on {}: the runtime has ended", call, c.name()));
  throw error(errc::invalid_argument,
              fmt::format("{}: this communicator has no members here (it is empty)", call));
}

// ---- rejoin: a new epoch, of all ranks again or of those that are there ----

namespace {

// By value: the handles keep the old world alive while the new one is made.
task<communicator> meet_again(communicator old) {
  comm::world& w = comm::world_of(comm::state_for(old, "rejoin"));
  if (!w.next_job)
    throw error(errc::not_supported,
                fmt::format("rejoin on {}: nothing starts ranks of this job anew; start it with tutti-run "
                            "--on-failure restart or --nnodes MIN:MAX, or go on without them with shrink()",
                            old.name()));
  co_return co_await w.owner()->meet_again(w);
}

}  // namespace

task<communicator> communicator::rejoin() const { return meet_again(*this); }

int newcomers(const communicator& world) {
  const auto& watch = comm::world_of(comm::state_for(world, "newcomers")).newcomers;
  return watch ? watch->count() : 0;
}

}  // namespace tutti
