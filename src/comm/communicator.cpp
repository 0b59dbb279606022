// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"

#include <fmt/format.h>

#include <tutti/communicator.hpp>

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

}  // namespace tutti
