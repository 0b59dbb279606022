// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>
#include <tutti/counters.hpp>

namespace tutti {

int communicator::rank() const noexcept { return state_ ? state_->rank() : -1; }
int communicator::size() const noexcept { return state_ ? state_->size() : 0; }
const std::string& communicator::name() const noexcept {
  static const std::string none = "(no communicator)";
  return state_ ? state_->name() : none;
}

void communicator::abort() {
  if (!state_ || state_->orphaned()) return;
  if (!state_->loop().on_this_thread())
    throw error(errc::wrong_thread,
                fmt::format("abort on {}: called outside the communicator's loop thread; use "
                            "boost::asio::post on communicator::get_executor()",
                            name()));
  state_->fail(errc::cancelled, fmt::format("{} was aborted by {}", name(), state_->describe(rank())), true,
               p2p::extent::offspring);
}

counters counters_of(const communicator& c) {
  counters n;
  if (!c.state_ || c.state_->orphaned()) return n;
  const p2p::endpoint_counters& messages = c.state_->endpoint().counters();
  n.sends = messages.sends;
  n.receives = messages.receives;
  n.eager = messages.eager;
  n.rendezvous = messages.rendezvous;
  n.fetched = messages.fetched;
  n.unexpected = messages.unexpected;
  n.corrupt_frames = messages.corrupt_frames;
  const core::loop& loop = c.state_->loop();
  n.turns = loop.counters().turns;
  n.parks = loop.counters().parks;
  n.stalls = loop.stalls().stalls;
  n.longest_stall = loop.stalls().longest;
  return n;
}

std::vector<int> communicator::failed_ranks() const {
  return state_ && !state_->orphaned() ? state_->failed_ranks() : std::vector<int>();
}

std::vector<int> communicator::suspected_ranks() const {
  return state_ && !state_->orphaned() ? state_->suspected_ranks() : std::vector<int>();
}

}  // namespace tutti
