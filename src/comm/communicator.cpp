// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>
#include <tutti/extend/executor_part.hpp>
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

// ---- what tutti::gpu needs of a communicator ----

namespace tutti::detail {
namespace {

communicator_state& state_behind(const communicator& c) noexcept { return *communicator_access::state_of(c); }

}  // namespace

void add_reference(call_part& part) noexcept { part.references_.fetch_add(1, std::memory_order_relaxed); }
void release_reference(call_part& part) noexcept {
  if (part.references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &part;
}

communicator_ref reference_to(const communicator& c) noexcept {
  return communicator_ref(communicator_access::state_of(c));
}

std::shared_ptr<device_side>& device_side_of(const communicator& c) noexcept {
  return state_behind(c).devices();
}
std::shared_ptr<device_side>& device_side_of_world(const communicator& c) noexcept {
  return comm::world_of(state_behind(c)).devices;
}
const std::vector<int>& world_ranks_of(const communicator& c) noexcept {
  return state_behind(c).group().members();
}

communicator_number number_of(const communicator& c) noexcept {
  return {state_behind(c).home().info().id, state_behind(c).numbers().id};
}

void fail(const communicator& c, errc why, const std::string& text) noexcept {
  if (!state_behind(c).detached()) state_behind(c).failure().fail(why, text, p2p::subject::other, true);
}

communicator_failure failure_of(const communicator& c) {
  const communicator_state& of = state_behind(c);
  return {of.failure().why(), of.failure().text()};
}

communicator beside(const communicator& c, int which) {
  communicator_state& of = state_behind(c);
  communicator_state& made = comm::world_of(of).make_communicator(
      {of.numbers().id_beside(which), of.numbers().id}, fmt::format("{} (devices)", of.group().name()),
      of.group().members());
  // An operation that uses it ends by its own communicator's timeout.
  made.pending().set_timeout(2 * of.pending().timeout());
  return communicator(communicator_ref(&made));
}

}  // namespace tutti::detail
