// SPDX-License-Identifier: Apache-2.0
// oneCCL, by which collectives on memory of devices go where that is wanted (tutti/gpu/open.hpp). libccl.so.2 is
// opened at run time (2021.17 or later), by its C interface.
//
// Ranks must be processes: oneCCL cannot connect two of one process. Where the program has not said it, oneCCL is told
// to work without a GPU (CCL_PLUGIN=ONECCL_LEGACY_CPU, when there is no queue), and, under tutti-run, to connect by
// libfabric (CCL_ATL_TRANSPORT=ofi) and to find LOCAL_RANK and LOCAL_WORLD_SIZE in the environment
// (CCL_PROCESS_LAUNCHER=torchrun), and to yield where there are fewer cores than its threads
// (CCL_YIELD=sched_yield).
//
// oneCCL cannot abort: when an operation ends early, its thread stays in the call, and device memory given as a span
// with it; where a connection of its own breaks, oneCCL may end the process (2022.2 does).
#pragma once

#include <tutti/gpu/sycl_queue.hpp>

#include <string>

namespace tutti::oneccl {

// Why oneCCL cannot be used; empty: it can. (Whether it connects shows in the first collective.)
std::string why_not();
// 20220200 for 2022.2.0; 0 without.
int version() noexcept;

}  // namespace tutti::oneccl
