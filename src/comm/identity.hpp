// SPDX-License-Identifier: Apache-2.0
// identity: identifies a communicator among all that ever existed, and says where its ranks run. No
// communication is needed.
#pragma once

#include "comm/communicator_state.hpp"

#include <cstdint>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

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

struct place {
  std::string host;
  std::int64_t pid = 0;
};

// The same on all ranks of the communicator, except `rank`.
struct identity {
  std::uint64_t world = 0;         // random, different for every world
  std::uint32_t communicator = 0;  // number within the world
  std::string name;
  int rank = 0;
  std::vector<place> places = {};  // by rank
};

// Call it on the loop thread of a communicator whose runtime still runs.
inline identity identity_of(const communicator& c) {
  communicator_state& state = *detail::communicator_access::state_of(c);
  const core::world_info& info = state.home().info();
  identity who{.world = info.id,
               .communicator = state.numbers().id,
               .name = state.group().name(),
               .rank = state.rank()};
  for (int rank = 0; rank < state.size(); ++rank) {
    const core::endpoint_record& record = info.record(state.group().world_rank(rank));
    who.places.push_back({record.host, record.pid});
  }
  return who;
}

}  // namespace tutti::comm
