// SPDX-License-Identifier: Apache-2.0
// An emulated device: streams, events, words and gates as a GPU has them, carried out by threads of this
// process. For programs on machines without a GPU, and for tests: it can be slow, reorder what may be
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
#include <type_traits>
#include <utility>

namespace tutti {

class runtime;

namespace emulated {

struct options {
  options() noexcept {}
  std::size_t memory_bytes = std::size_t{256} << 20;
  int workers = 2;                     // threads; kernels of different streams run on them at a time
  std::chrono::microseconds delay{0};  // before every piece of work
  std::uint64_t adversary =
      0;                      // not 0: a seed; streams take turns and pause as is worst, within what is legal
  std::uint64_t fail_at = 0;  // not 0: the n-th copy, fill or kernel fails, and with it the device
  bool timeline = true;       // as capabilities has them
  bool host_call = true;
  bool gate = true;
  bool kernels = true;
};

// What an access of the emulated device throws: an address that is not allocated, memory of the host's that
// is not pinned. The device has failed then, as a GPU would.
class access;

// An emulated device, which the ranks of one process may share as they would a GPU. Thread-safe.
class emulated_device {
 public:
  explicit emulated_device(options how = options());
  emulated_device(const emulated_device&) = delete;
  emulated_device& operator=(const emulated_device&) = delete;
  ~emulated_device();

  // From now on: the n-th piece of work from here fails.
  void fail_after(std::uint64_t n, std::string why = "injected fault");
  bool failed() const noexcept;
  std::uint64_t executed() const noexcept;   // pieces of work
  std::size_t allocations() const noexcept;  // that are live, of device memory
  // While it is true, nothing begins: what is enqueued stays pending.
  void pause(bool on) noexcept;

  struct impl;
  impl& internals() const noexcept { return *impl_; }

 private:
  std::unique_ptr<impl> impl_;
};

// The emulated device that stands for device `ordinal` of this process; made on first use, with `options`
// from then.
std::shared_ptr<emulated_device> default_device(int ordinal = 0);

using chip [[deprecated("write emulated_device")]] = emulated_device;
[[deprecated("write default_device")]] inline std::shared_ptr<emulated_device> default_chip(int ordinal = 0) {
  return default_device(ordinal);
}

// The device on the loop of a communicator or a runtime. An emulated device is closed with the last device on
// it.
gpu::device open(const communicator& of, std::shared_ptr<emulated_device> on = default_device());
gpu::device open(runtime& rt, std::shared_ptr<emulated_device> on = default_device());

// What a kernel sees: memory of the device behind its addresses.
class access {
 public:
  explicit access(const emulated_device::impl& on) noexcept : device_(on) {}
  // Elements that the kernel may touch.
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

// A kernel of the program's own: f(access) runs on a thread of the emulated device when the stream gets to
// it. It is copied; buffers that it uses must live until then. errc::invalid_argument for a stream of another
// kind of device.
void launch(const gpu::stream& in, std::function<void(access)> f);

// A stream is being captured: for tests of what depends on that.
void set_capturing(const gpu::stream& s, bool on);

}  // namespace emulated
}  // namespace tutti
