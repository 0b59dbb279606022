// SPDX-License-Identifier: Apache-2.0
// What is done to a bucket of gradients on a device, whose type is known at run time only.
#pragma once

#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>

namespace tutti::gpu::train {

// Of all of it, in place.
request all_reduce(const communicator& c, const device_values& inout, reduce_kind kind, const stream& after);
request broadcast(const communicator& c, const device_values& inout, int root, const stream& after);

// to = from * factor in the order of `in`; completes when that is enqueued. Where there is no kernel for it,
// by the processor.
task<> convert(device_values to, device_values from, double factor, stream in);

// What is enqueued in `in` after it completes comes after the collective, which the device then finishes for itself.
// Destroyed before, it cancels the collective on all ranks.
task<> enqueued_before(request collective, stream in);

}  // namespace tutti::gpu::train
