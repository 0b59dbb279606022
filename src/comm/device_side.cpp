// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>
#include <tutti/detail/call_part.hpp>

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
  return state_behind(c).of_world().devices;
}
const std::vector<int>& world_ranks_of(const communicator& c) noexcept { return state_behind(c).members(); }

communicator_number number_of(const communicator& c) noexcept {
  return {state_behind(c).of_world().info().id, state_behind(c).id()};
}

void fail(const communicator& c, errc why, const std::string& text) noexcept {
  if (!state_behind(c).detached()) state_behind(c).fail(why, text, p2p::subject::other, true);
}

communicator_failure failure_of(const communicator& c) {
  const communicator_state& of = state_behind(c);
  return {of.failure(), of.failure_text()};
}

communicator beside(const communicator& c, int which) {
  communicator_state& of = state_behind(c);
  communicator_state& made = of.of_world().make_communicator(
      of.id_beside(which), of.id(), fmt::format("{} (devices)", of.name()), of.members());
  // An operation that uses it ends by its own communicator's timeout.
  made.set_timeout(2 * of.timeout());
  return communicator(communicator_ref(&made));
}

}  // namespace tutti::detail
