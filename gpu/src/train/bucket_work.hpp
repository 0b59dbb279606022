// SPDX-License-Identifier: Apache-2.0
// What is done to a bucket of gradients on a device, whose type is known at run time only.
#pragma once

#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <utility>

namespace tutti::gpu::train {

operation all_reduce(const any_communicator& c, const device_values& inout, reduce_kind kind,
                     const stream& after);
operation broadcast(const any_communicator& c, const device_values& inout, int root, const stream& after);

// to = from * factor in the order of `in`; completes when that is enqueued. Where there is no kernel for it,
// by the processor.
task<> convert(device_values to, device_values from, double factor, stream in);

// A collective that is cancelled, on all ranks, when this goes before it is in the device's hands.
class started {
 public:
  explicit started(operation op) : work_(tutti::start(std::move(op))) {}
  started(const started&) = delete;
  started& operator=(const started&) = delete;
  ~started() {
    if (!enqueued_) work_.cancel();
  }
  // What is enqueued in `in` afterwards comes after the collective.
  task<> enqueued_before(stream in) {
    co_await work_.enqueued();
    enqueued_ = true;
    in.wait(work_);
  }

 private:
  work work_;
  bool enqueued_ = false;
};

}  // namespace tutti::gpu::train
