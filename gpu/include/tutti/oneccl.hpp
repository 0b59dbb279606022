// SPDX-License-Identifier: Apache-2.0
// oneCCL at the loop: its collectives as awaitables, by its C interface. libccl.so.2 is opened at run time
// (2021.17 or later).
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/any_communicator.hpp>
#include <tutti/gpu/sycl_queue.hpp>
#include <tutti/task.hpp>

#include <memory>
#include <string>

namespace tutti::oneccl {

class group_impl;

// Why oneCCL cannot be used; empty: it can. (Whether it connects shows in init().)
std::string why_not();
// 20220200 for 2022.2.0; 0 without.
int version() noexcept;

// A oneCCL communicator. A handle; belongs to its device's loop.
//
// The operations are those of all device communicators. Calls of oneCCL block, and it wants all of a
// communicator's from one thread: each communicator has a thread, which makes them in the order in which
// operations were started; the loop never is in oneCCL. Ranks must be processes: oneCCL cannot connect two of
// one process.
//
// send and recv have no tags, and a recv takes exactly what was sent. A send may wait for its recv, and later
// operations wait for it: where ranks exchange, one of the two sends first. avg and premul_sum are done
// beside oneCCL where it has none; callables and bitwise reductions are errc::not_supported.
//
// No operation waits for ever: after the time limit of the communicator that this was made from, and when a
// rank has died or left, everything pending ends with errc::timed_out, errc::peer_failed or errc::peer_left,
// and the communicator is of no more use; the text names the ranks that had not called the operation. oneCCL
// cannot abort: the thread stays in its call, and device memory given as a span with it; where a connection
// of its own breaks, oneCCL may end the process (2022.2 does).
class communicator : public gpu::any_communicator {
 public:
  communicator() noexcept = default;
  explicit communicator(std::shared_ptr<group_impl> impl) noexcept;

  // As communicator::split of the host: for each color one, ordered by key; empty for a negative color. Uses
  // this one's thread.
  task<communicator> split(int color, int key) const;

 private:
  std::shared_ptr<group_impl> impl_;
};

// Made by all ranks of `world` together. The id goes over `world`, and a first collective connects the ranks.
// Where the program has not said it, oneCCL is told to work without a GPU (CCL_PLUGIN=ONECCL_LEGACY_CPU, when
// there is no queue), and, under tutti-run, to connect by libfabric (CCL_ATL_TRANSPORT=ofi) and to find
// LOCAL_RANK and LOCAL_WORLD_SIZE in the environment (CCL_PROCESS_LAUNCHER=torchrun), and to yield where
// there are fewer cores than its threads (CCL_YIELD=sched_yield). Errors: errc::not_supported without oneCCL,
// errc::device_failed with its words, errc::timed_out.
task<communicator> init(tutti::communicator world, gpu::device on, sycl_queue queue = {});

}  // namespace tutti::oneccl
