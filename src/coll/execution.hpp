// SPDX-License-Identifier: Apache-2.0
// Makes the coroutine of a call from its algorithm: the local steps around the algorithm, copies,
// accumulators of another type, and the new communicators of group, split and duplicate.
#pragma once

#include "coll/collective.hpp"

#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// The buffer of this rank whose type all ranks must agree on, and its count if blocks are even.
inline const detail::buffer_view& agreed_buffer(const detail::call& what) noexcept {
  return detail::row_of(what.kind).agreed == detail::side::in ? what.in : what.out;
}

// Describes what all ranks must agree on, including the algorithm chosen. Throws what choose() throws.
comm::collective_description describe_call(comm::communicator_state& c, const detail::call& what);

// The task refers to `op` until it ends.
task<> execute(detail::operation_state& op, const collective& c, algorithm with);

}  // namespace tutti::coll
