// SPDX-License-Identifier: Apache-2.0
// What is done to a bucket of gradients on a device, whose type is known at run time only.
#pragma once

#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>

namespace tutti::gpu::train {

// Starts a collective of all of it, in place, after the work on `after`.
request in_place(tutti::detail::operation_kind kind, const communicator& c, const device_values& inout,
                 const stream& after, int root, reduce_kind op = reduce_kind::none);

// Reduces all of it, in place, in the order of `in`. Completes when `in` waits for the result. Destroyed before, it
// cancels the collective on all ranks.
task<> all_reduce(communicator c, device_values inout, reduce_kind op, stream in);

// to = from * factor in the order of `in`; completes when that is enqueued. Where there is no kernel for it,
// by the processor.
task<> convert(device_values to, device_values from, double factor, stream in);

}  // namespace tutti::gpu::train
