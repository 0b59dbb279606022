// SPDX-License-Identifier: Apache-2.0
// oneCCL, which serves collectives on device memory where the program selects it (tutti/gpu/open.hpp).
// libccl.so.2 is opened at run time (2021.17 or later), through its C interface.
//
// Ranks must be processes: oneCCL cannot connect two ranks of one process. Unless the program sets them,
// tutti sets these variables for oneCCL:
// - CCL_PLUGIN=ONECCL_LEGACY_CPU if there is no queue: oneCCL works without a GPU.
// - CCL_ATL_TRANSPORT=ofi under tutti-run: it connects by libfabric.
// - CCL_PROCESS_LAUNCHER=torchrun under tutti-run: it reads LOCAL_RANK and LOCAL_WORLD_SIZE.
// - CCL_YIELD=sched_yield if there are fewer cores than its threads: it yields.
//
// oneCCL cannot abort. When an operation ends early, its thread stays in the call, and so does device memory
// given as a span. If one of oneCCL's own connections breaks, oneCCL may end the process (2022.2 does).
#pragma once

#include <functional>
#include <string>

namespace tutti::oneccl {

// Says why oneCCL cannot be used; empty if it can. (Whether it connects shows in the first collective.)
std::string why_not();
// oneCCL's version: 20220200 for 2022.2.0; 0 without oneCCL.
int version() noexcept;

// A SYCL queue of the program, on the device that it opened, for oneCCL to work on memory of that device.
// `handle` is a sycl::queue*, and finish() waits for the work in it (tutti/sycl.hpp makes both from a queue).
// Used on the communicator's thread. Without a queue, oneCCL works on host memory. Device data then pass
// through pinned memory; data in host memory (pinned_buffer) do not.
struct sycl_queue {
  void* handle = nullptr;
  std::function<void()> finish;
};

}  // namespace tutti::oneccl
