// SPDX-License-Identifier: Apache-2.0
// The state of a communicator behind its handle, for calls that are no operations.
#pragma once

#include "comm/communicator_state.hpp"

#include <tutti/communicator.hpp>

namespace tutti::detail {

struct communicator_access {
  static communicator_state* state_of(const communicator& c) noexcept { return c.state_.get(); }
};

}  // namespace tutti::detail

namespace tutti::comm {

// The state of a communicator whose runtime still runs; otherwise, or if it is empty, null. With `call`, which is
// what the program called, throws on another thread than the loop's.
inline communicator_state* living_state_of(const communicator& c, const char* call = nullptr) {
  communicator_state* const state = detail::communicator_access::state_of(c);
  if (state == nullptr || state->detached()) return nullptr;
  if (call != nullptr) state->require_loop_thread(call);
  return state;
}
// The same, and throws instead of returning null.
communicator_state& state_for(const communicator& c, const char* call);

}  // namespace tutti::comm
