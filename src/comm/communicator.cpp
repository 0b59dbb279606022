// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"

#include <tutti/communicator.hpp>

namespace tutti {

int communicator::rank() const noexcept { return state_ ? state_->rank() : -1; }
int communicator::size() const noexcept { return state_ ? state_->size() : 0; }
const std::string& communicator::name() const noexcept {
  static const std::string none = "(no communicator)";
  return state_ ? state_->name() : none;
}

}  // namespace tutti
