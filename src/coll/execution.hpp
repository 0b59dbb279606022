// SPDX-License-Identifier: Apache-2.0
// From a call and an algorithm to the coroutine that does it: what surrounds the algorithm, local copies,
// accumulators of another type, and the new communicators of group, split and duplicate.
#pragma once

#include "coll/collective.hpp"

#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// The buffer of this rank whose type, and of even blocks whose count, all ranks must agree on.
inline const detail::buffer_view& agreed_buffer(const detail::call& what) noexcept {
  return detail::row_of(what.kind).agreed == detail::side::in ? what.in : what.out;
}

// What all ranks must agree on, with the algorithm chosen for it. Throws what choose() throws.
comm::collective_description describe_call(comm::communicator_state& c, const detail::call& what);

// The task refers to `op` until it ends.
task<> execute(detail::operation_state& op, const collective& c, algorithm with);

}  // namespace tutti::coll
