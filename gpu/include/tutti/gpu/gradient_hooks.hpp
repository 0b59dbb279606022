// SPDX-License-Identifier: Apache-2.0
// How data_parallel on devices averages a bucket of gradients: exactly, or in half the bytes.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

// Floating-point numbers on a device, of whatever type: a device_span, which is borrowed, or a device_buffer,
// which is kept.
class device_values {
 public:
  template <WritableDeviceMemory B>
    requires(tutti::detail::is_floating(
        tutti::detail::element_type_of<std::remove_cv_t<typename B::value_type>>()))
  device_values(const B& memory) noexcept : view_(detail::view_of(memory)) {}
  explicit device_values(detail::view v) noexcept : view_(std::move(v)) {}

  std::size_t size() const noexcept { return view_.count; }
  std::size_t bytes() const noexcept { return view_.bytes(); }
  element_type type() const noexcept { return view_.type; }
  void* data() const noexcept { return view_.data; }
  const detail::view& view() const noexcept { return view_; }

 private:
  detail::view view_;
};

// Gradients that travel together, one behind the other.
struct gradient_bucket {
  gradient_bucket(std::size_t i, device_values d) noexcept : index(i), data(std::move(d)) {}
  std::size_t index;  // in the order in which buckets start
  device_values data;
};

// Derive from it for a way of your own; one object for each data_parallel.
class gradient_hook {
 public:
  virtual ~gradient_hook() = default;
  // Makes bucket.data the average over the ranks of `c`, exactly or nearly, the same bits on all of them, in
  // the order of `in`: what it reads has been written by what is there, and when it completes, everything
  // that it does is there or `in` waits for it. Called on the loop thread, once for each bucket and step, in
  // the same order on all ranks, the next when the last has completed; the collectives of `c` are its own
  // until then. bucket.data stays until the device has passed it.
  virtual task<> reduce(communicator c, gradient_bucket bucket, stream in) = 0;
};

// all_reduce(avg). What data_parallel does without a hook is the same, and buckets overlap more.
std::shared_ptr<gradient_hook> identity_hook();

// Half the bytes of float, a quarter of double; halves travel as they are. Each rank's part is divided by the
// number of ranks first, so that no sum is too large for a float16 where the gradients are not. Converted by
// kernels, or, on devices that have none, by the processor.
std::shared_ptr<gradient_hook> float16_hook();
std::shared_ptr<gradient_hook> bfloat16_hook();

}  // namespace tutti::gpu
