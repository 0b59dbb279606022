// SPDX-License-Identifier: Apache-2.0
// Where an operation on tensors of a device runs: on that device, by tutti::gpu, or on the host, by copies.
#pragma once

#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace tutti::python {

// A device on which the operations of one communicator run. Their tensors stay there, and streams wait instead of the
// host.
//
// They begin and end on `stream`, which is PyTorch's: it waits for the caller's current stream, the operation follows
// it, and it follows the operation. Copies of tensors that do not lie in order are on it, too. Work::wait() makes the
// caller's stream wait for it. tutti itself does not touch the caller's stream, which may be the default one, nor closes
// a gate: PyTorch allocates, frees and loads kernels at any time.
struct device_place {
  const c10::Device device;
  const c10::Stream stream;
  // On the loop; empty once it is closed.
  gpu::device opened = {};
  gpu::stream as_tutti = {};  // `stream`

  // Work on `stream` from now on comes after the work on the caller's current stream. Throws ValueError while that is
  // being captured into a graph.
  void begin() const;
  void close() noexcept;  // on the loop
};

// The decision for one communicator: `place`, or else the reason why its operations are staged.
struct placement {
  std::shared_ptr<device_place> place = nullptr;
  std::string why_staged = {};
  bool decided = false;
};
// Why operations on tensors of this device are staged on every machine; empty if `decide` is to find out.
std::string why_always_staged(c10::Device on);
// Not on the loop. A place on the device that is not open yet.
std::shared_ptr<device_place> make_place(c10::Device on);
// Opens the device of `made`, or says why operations are staged. A collective of `world`: each rank has a device of the
// same type, and all decide the same. `memory` is some of the device's.
// Errors: those of gpu::open, save errc::not_supported.
task<> decide(communicator world, std::shared_ptr<device_place> made, const void* memory,
              placement* decision);

}  // namespace tutti::python
