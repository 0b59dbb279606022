// SPDX-License-Identifier: Apache-2.0
// device: one device as the loop of one rank sees it.
#pragma once

#include <tutti/gpu/memory.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tutti::gpu {

namespace impl {
class attachment;
}

// The capabilities of a device's driver. If one is missing, tutti works around it or reports an error that
// says so.
struct capabilities {
  // Streams write words that the host polls; without it, events are queried.
  bool timeline = false;
  // The driver wakes a sleeping loop; without it, the loop checks by a timer.
  bool host_call = false;
  // A stream can wait for the host.
  bool gate = false;
  // The reduction kernels are available: ranks that share one device reduce on it.
  bool kernels = false;
  // Work of several processes runs at the same time. On CUDA, MPS does that; without it they take turns of
  // milliseconds.
  bool processes_at_once = true;
};

// A device on the loop that it was opened for (emulated::open, cuda::open). A cheap handle: copies share the
// device. Used on the loop's thread. When the last handle, stream, buffer and operation has gone, gates are
// opened, started work is finished and memory is freed. That waits for the device, 10 s at most.
// Errors: an error of the device ends every operation that waits for it with errc::device_failed and the
// driver's text. So do all later calls; no operation waits for a failed device.
class device {
 public:
  // An empty handle.
  device() noexcept = default;
  explicit device(std::shared_ptr<impl::attachment> state) noexcept : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  // Its name, such as "emulated device 0" or "cuda device 0 (NVIDIA H200)".
  std::string name() const;
  // The device's number among those of its kind.
  int ordinal() const noexcept;
  // The capabilities of the device's driver.
  capabilities can() const noexcept;
  // Whether the device has reported an error.
  bool failed() const noexcept;
  // Returns what the driver knows of a pointer; ordinary host memory if it knows nothing.
  memory_info describe(const void* memory) const noexcept;

  // Sets how many gates the program may keep closed at a time; the default is 1. Streams that share a
  // hardware queue with a stream at a closed gate wait too, and so may operations that use tutti's own streams
  // after one on that stream. A program that waits for one of those before it opens the gate never continues.
  void set_gate_limit(int gates) noexcept;

  impl::attachment& state() const noexcept { return *state_; }
  const std::shared_ptr<impl::attachment>& shared_state() const noexcept { return state_; }

 private:
  std::shared_ptr<impl::attachment> state_;
};

}  // namespace tutti::gpu
