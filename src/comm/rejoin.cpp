// SPDX-License-Identifier: Apache-2.0
// communicator::rejoin: a new epoch, of all ranks again or of those that are there.
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

namespace tutti {
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
