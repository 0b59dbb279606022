// SPDX-License-Identifier: Apache-2.0
// device_communicator: collectives on memory of devices with nothing but tutti and the device's driver.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/any_communicator.hpp>
#include <tutti/task.hpp>

#include <cstddef>

namespace tutti::gpu {

struct communicator_options {
  communicator_options() noexcept {}
  // Of operations that do not say by(). TUTTI_GPU_PATH=one_device|staged overrides it.
  path way = path::automatic;
  std::size_t chunk_bytes = 1 << 19;  // of the staged path; the same on all ranks. TUTTI_GPU_CHUNK overrides
  int depth = 4;                      // chunks in flight
};

// Collectives and messages between ranks whose devices tutti has opened, whatever kind they are of.
//
// Two ways, chosen per operation, or told (operation::by):
//   one_device  all ranks have one device: one kernel reads all inputs and writes all outputs, ordered by
//               events. Ranks that are threads of one process need no copy; those of several, where CUDA IPC
//               works, pass through memory of rank 0's
//   staged      chunks go to pinned host memory, through the CPU communicator, and back, the three
//               overlapping; any devices
//
// User callables reduce staged only. send and recv are staged, and between processes all_to_all.
class device_communicator : public any_communicator {
 public:
  using any_communicator::any_communicator;
  // Whether the ranks can use that way at all.
  bool can(path way) const noexcept;
};

// Made by all ranks of `world` together, each with its device. Does not use `world` itself afterwards, but
// communicators made from it. Used on the loop thread. What runs is cancelled, on all ranks, when the last
// handle goes.
task<device_communicator> init(communicator world, device on,
                               communicator_options how = communicator_options());

}  // namespace tutti::gpu
