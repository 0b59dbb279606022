// SPDX-License-Identifier: Apache-2.0
// The arguments of a call: checks and descriptions.
#pragma once

#include "comm/communicator_state.hpp"

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

inline constexpr const char* empty_text =
    "this communicator has no members here (it is empty); test it with `if (comm)` first";

// Says why the call is invalid; empty if it is valid. Checks this rank's arguments only.
std::string bad_argument(const comm::communicator_state& c, const detail::call& what);

// Whether a message is certainly valid, by a few comparisons; otherwise ask bad_argument.
inline bool plainly_good(const comm::communicator_state& c, const detail::call& what) noexcept {
  return what.kind <= detail::operation_kind::receive && !what.part &&
         static_cast<unsigned>(what.peer) < static_cast<unsigned>(c.size()) &&
         what.tag >= (what.kind == detail::operation_kind::receive ? any_tag : 0) &&
         what.in.count >> 31 == 0 && (what.in.data != nullptr || what.in.count == 0) &&
         (what.out.data != nullptr || what.out.count == 0);
}

// "send of 8 bytes to rank 1 (host a, pid 7), tag 0 on world, rank 0".
std::string title(const comm::communicator_state& c, const detail::call& what);

}  // namespace tutti::ops
