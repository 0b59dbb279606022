// SPDX-License-Identifier: Apache-2.0
// What a call says, checked and in words.
#pragma once

#include "comm/communicator_state.hpp"

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::coll {

// Why the call cannot be meant, or empty. Looks at this rank's arguments only.
std::string bad_argument(const comm::communicator_state& c, const detail::call& what);

// "send of 8 bytes to rank 1 (host a, pid 7), tag 0 on world, rank 0".
std::string title(const comm::communicator_state& c, const detail::call& what);

// "timed out after 30 s".
std::string timeout_text(const comm::communicator_state& c);

}  // namespace tutti::coll
