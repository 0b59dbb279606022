// SPDX-License-Identifier: Apache-2.0
// device: one device as the loop of one rank sees it.
#pragma once

#include <tutti/gpu/memory.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tutti::gpu {

namespace detail {
class attachment;
}

// What a device's driver can do; what it cannot has a way around, or an error that says so.
struct capabilities {
  bool timeline = false;   // streams write words that the host polls; without: events are queried
  bool host_call = false;  // the driver wakes a sleeping loop; without: the loop looks by a timer
  bool gate = false;       // a stream can wait for the host
  bool kernels = false;    // the reduction kernels are there: ranks on one device reduce on it
};

// A cheap handle: copies share what is behind. Belongs to the loop that it was opened for (emulated::open,
// cuda::open), and is used on its thread. What was started on it is finished, gates are opened, and its
// memory is freed, when the last of the handles, streams, buffers and operations has gone: waits for the
// device then, 10 s at most.
//
// An error that the device reports ends everything that waits for it with errc::device_failed and the
// driver's words, and every later call: no operation waits for a device that cannot go on.
class device {
 public:
  device() noexcept = default;  // none
  explicit device(std::shared_ptr<detail::attachment> state) noexcept : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  std::string name() const;  // "emulated device 0", "cuda device 0 (NVIDIA H200)"
  int ordinal() const noexcept;
  capabilities can() const noexcept;
  bool failed() const noexcept;
  // What the driver knows of a pointer; ordinary host memory when it knows nothing.
  memory_info describe(const void* memory) const noexcept;

  // How many gates of the program's own may be closed at a time (1): streams that share a hardware queue with
  // a stream that waits at a gate wait with it, and a program that waits for one of those before it opens the
  // gate waits for ever.
  void set_gate_limit(int gates) noexcept;

  detail::attachment& state() const noexcept { return *state_; }
  const std::shared_ptr<detail::attachment>& shared_state() const noexcept { return state_; }

 private:
  std::shared_ptr<detail::attachment> state_;
};

}  // namespace tutti::gpu
