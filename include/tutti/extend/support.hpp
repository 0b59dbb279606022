// SPDX-License-Identifier: Apache-2.0
// What the runtime lends to extensions: recycled memory, and how their awaitables resume and end early.
#pragma once

#include <tutti/detail/deadline.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/extend/version.hpp>
#include <tutti/shared_memory.hpp>

namespace tutti::extend::inline v1 {

// An allocator of memory for objects that are made again and again, and a shared_ptr in such memory. The memory is the
// thread's: no heap allocation in steady state.
using detail::frame_allocator;
using detail::make_recycled;

// Memory that the other ranks of this host can read in place, as that of shared_allocator.
using detail::allocate_shared_bytes;
using detail::free_shared_bytes;

// Returns a time point plus a duration, or the largest time point if the clock cannot represent the sum.
using detail::after;

// Resumes a coroutine, at a bounded depth of nested calls. It may destroy the caller.
using detail::resume_bounded;

// An awaitable that ends early: its awaiter derives from stop_node, joins the scope_of() the awaiting coroutine, and gets
// on_stop() when that is stopped. `co_await own_promise{}` returns the scoped_promise of the coroutine itself.
using detail::own_promise;
using detail::scope_of;
using detail::scoped_promise;
using detail::stop_node;
using detail::stop_scope;

}  // namespace tutti::extend::inline v1
