// SPDX-License-Identifier: Apache-2.0
// sycl_queue: a SYCL queue for oneCCL.
#pragma once

#include <functional>

namespace tutti::oneccl {

// A SYCL queue of the program, on the device that it opened, for oneCCL to work on memory of that device.
// `handle` is a sycl::queue*, and finish() waits for the work in it (tutti/sycl.hpp makes both from a queue).
// Used on the communicator's thread. Without a queue, oneCCL works on host memory. Device data then pass
// through pinned memory; data in host memory (pinned_buffer) do not.
struct sycl_queue {
  void* handle = nullptr;
  std::function<void()> finish;
};

}  // namespace tutti::oneccl
