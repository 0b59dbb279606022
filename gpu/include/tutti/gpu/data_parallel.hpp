// SPDX-License-Identifier: Apache-2.0
// data_parallel on gradients in memory of a device: gradient hooks, which average a bucket exactly or in half the
// bytes, and the comparison of replicas.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>
#include <tutti/train/bucket.hpp>
#include <tutti/train/data_parallel.hpp>
#include <tutti/train/replicas.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::gpu {

// Floating-point numbers of any type on a device: a device_span, which is borrowed, or a device_buffer, which
// is kept alive. `rows` makes a matrix of a gradient, for low_rank_hook().
class device_values {
 public:
  template <WritableDeviceMemory B>
    requires(tutti::extend::is_floating(
                tutti::extend::element_type_of<std::remove_cv_t<typename B::value_type>>()))
  device_values(const B& memory, std::size_t rows = 1) noexcept : view_(impl::view_of(memory)), rows_(rows) {}
  explicit device_values(impl::view v) noexcept : view_(std::move(v)) {}

  std::size_t size() const noexcept { return view_.count; }
  std::size_t bytes() const noexcept { return view_.bytes(); }
  element_type type() const noexcept { return view_.type; }
  void* data() const noexcept { return view_.data; }
  std::size_t rows() const noexcept { return rows_; }
  const impl::view& view() const noexcept { return view_; }

 private:
  impl::view view_;
  std::size_t rows_ = 1;
};

// Gradients that are averaged together, one behind the other.
struct gradient_bucket {
  gradient_bucket(std::size_t i, device_values d) noexcept : index(i), data(std::move(d)) {}
  // Position in the order in which buckets start.
  std::size_t index;
  device_values data;
};

// Averages buckets on a device. Derive from it to write a hook of your own; each data_parallel needs its own object.
class gradient_hook : public tutti::bucketing::any_gradient_hook {
 public:
  // Replaces bucket.data by the average over the ranks of `c`, exact or approximate, with the same bits on
  // all ranks. It works in the order of stream `in`: its reads come after the work there. When the task
  // completes, all of its work is on `in`, or `in` waits for it. Called on the loop thread, once per bucket
  // and step, in the same order on all ranks. The next call comes when the last has completed, and until then
  // the hook alone uses the collectives of `c`.
  // Buffers: bucket.data stays valid until the device has finished.
  virtual task<> reduce(communicator c, gradient_bucket bucket, stream in) = 0;
};

// Averages by all_reduce(avg). data_parallel without a hook computes the same, and overlaps buckets more.
std::shared_ptr<gradient_hook> identity_hook();

// Average in half the bytes of float, a quarter of double; halves are sent as they are. Each rank's part is
// first divided by the number of ranks, so that sums do not overflow float16 unless the gradients do. Kernels
// convert, or the processor for devices without kernels.
std::shared_ptr<gradient_hook> float16_hook();
std::shared_ptr<gradient_hook> bfloat16_hook();

// The names of earlier versions.
using tutti::data_parallel;
using tutti::data_parallel_options;

// Gradients in memory of a device, for data_parallel::create().
tutti::bucketing::gradient_memory memory_of(const std::vector<device_values>& gradients);
// data_parallel::broadcast() of such memory.
task<> broadcast_pieces(communicator c, std::vector<device_values> pieces, int root, stream after);

// Compares the values of all ranks bit for bit. Collective. The processor hashes them after the work on
// `after`, from copies of one part at a time, in the order of the pieces. The hash equals that of the same
// values in host memory.
task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after);

}  // namespace tutti::gpu
