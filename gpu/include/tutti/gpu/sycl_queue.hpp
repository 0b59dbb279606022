// SPDX-License-Identifier: Apache-2.0
// sycl_queue: a queue of SYCL's, for oneCCL.
#pragma once

#include <functional>

namespace tutti::oneccl {

// A SYCL queue of the program's, on the device that it opened, for oneCCL to work on memory of that device:
// `handle` is a sycl::queue*, and finish() waits for what is in it (tutti/sycl.hpp makes both of a queue).
// Used on the communicator's thread. Without one, oneCCL works on host memory: data of devices pass through
// pinned memory, data in host memory (pinned_buffer) do not.
struct sycl_queue {
  void* handle = nullptr;
  std::function<void()> finish;
};

}  // namespace tutti::oneccl
