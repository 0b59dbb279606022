// SPDX-License-Identifier: Apache-2.0
// The emulated device: streams, events, words and gates as a GPU has them, executed by threads of this
// process. For programs on machines without a GPU, and for tests: it can be slow, reorder whatever may be
// reordered, and fail on demand.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tutti {

class runtime;

namespace emulated {

// How an emulated device behaves. It has all capabilities, unless they are switched off.
struct options : gpu::capabilities {
  options() noexcept : capabilities{true, true, true, true, true} {}
  // Size of the device's memory.
  std::size_t memory_bytes = std::size_t{256} << 20;
  // Threads; kernels of different streams run on them at the same time.
  int workers = 2;
  // Delay before each piece of work.
  std::chrono::microseconds delay{0};
  // If not 0, a seed: streams take turns and pause in the worst legal order.
  std::uint64_t adversary = 0;
};

// An emulated device, which the ranks of one process may share like a GPU. Thread-safe.
class emulated_device {
 public:
  explicit emulated_device(options how = options());
  emulated_device(const emulated_device&) = delete;
  emulated_device& operator=(const emulated_device&) = delete;
  ~emulated_device();

  // Makes the n-th copy, fill or kernel from now on fail, and the device with it.
  void fail_after(std::uint64_t n, std::string why = "injected fault");
  // Whether the device has failed.
  bool failed() const noexcept;
  // Live allocations of device memory.
  std::size_t allocations() const noexcept;
  // While paused, nothing starts: enqueued work stays pending.
  void pause(bool on) noexcept;

  struct impl;
  impl& internals() const noexcept { return *impl_; }

 private:
  std::unique_ptr<impl> impl_;
};

// Returns the emulated device that stands for device `ordinal` of this process. It is made on first use, with
// default `options`.
std::shared_ptr<emulated_device> default_device(int ordinal = 0);

// Opens the device on the loop of a communicator or a runtime. An emulated device is closed with the last
// device on it.
gpu::device open(const communicator& of, std::shared_ptr<emulated_device> on = default_device());
gpu::device open(runtime& rt, std::shared_ptr<emulated_device> on = default_device());

// A kernel's access to device memory. It throws for an address that is not allocated, and for host memory that
// is not pinned. The device has then failed, as a GPU would.
class access {
 public:
  explicit access(const emulated_device::impl& on) noexcept : device_(on) {}
  // Returns the elements at an address that the kernel may touch.
  template <class T>
  T* at(gpu::device_span<T> s) const {
    return static_cast<T*>(const_cast<void*>(find(s.data(), s.bytes())));
  }
  template <class T>
  T* at(const gpu::device_buffer<T>& b) const {
    return at(gpu::device_span<T>(b.data(), b.size()));
  }

 private:
  const void* find(const void* memory, std::size_t bytes) const;
  const emulated_device::impl& device_;
};

// Enqueues a kernel of the program: f(access) runs on a thread of the emulated device when the stream reaches
// it.
// Buffers: `f` is copied; buffers that it uses must live until it has run.
// Errors: throws errc::invalid_argument for a stream of another kind of device.
void launch(const gpu::stream& in, std::function<void(access)> f);

// Marks a stream as being captured, for tests of code that depends on it.
void set_capturing(const gpu::stream& s, bool on);

}  // namespace emulated
}  // namespace tutti
