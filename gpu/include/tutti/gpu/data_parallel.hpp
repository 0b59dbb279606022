// SPDX-License-Identifier: Apache-2.0
// data_parallel on devices: averages gradients over the ranks while the device computes the remaining ones.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/task.hpp>
#include <tutti/train/replicas.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::gpu {

// Options of data_parallel::create().
struct data_parallel_options {
  data_parallel_options() noexcept {}

  // Bytes at which a bucket is full; the gradient that reaches the limit is its last. The first bucket is
  // smaller, so that communication starts early.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // `nullptr` averages without compression.
  std::shared_ptr<gradient_hook> hook;
  // Sums instead of averaging: for gradients that each rank has divided by the samples of all ranks.
  bool sum = false;
};

// The gradients of one model on a device, averaged over all ranks of a communicator in each step.
//
//   auto device = co_await tutti::gpu::open(world);
//   auto parallel = co_await tutti::gpu::data_parallel::create(world, gradients);
//   co_await parallel.broadcast(parameters, 0, compute);
//   for (each batch) {
//     for (each layer i, from the last) {
//       backward_kernels<<<..., compute.get()>>>(...);
//       parallel.ready(i, compute);
//     }
//     co_await parallel.reduced(compute);  // the host goes on, `compute` waits for the averages
//     optimiser_kernels<<<..., compute.get()>>>(...);
//   }
//
// Gradients are put into buckets from the last to the first; each bucket has one element type. The all_reduce
// of a bucket is issued when its last gradient is reported ready and all earlier buckets have started. So the
// order is the same on all ranks. On the device it starts after the work that computes those gradients, and
// overlaps later work. Gradients that are adjacent in memory are reduced in place. Others are copied into a
// bucket in device memory and back.
//
// Belongs to the loop thread of its device. Move-only.
// Cancellation: destroying it with buckets in flight cancels them on all ranks.
class data_parallel {
 public:
  data_parallel() noexcept;
  data_parallel(data_parallel&&) noexcept;
  data_parallel& operator=(data_parallel&&) noexcept;
  ~data_parallel();

  // Registers the gradients. Collective over `world`, after gpu::open(world). It averages over a communicator
  // of its own, so the program's collectives may run beside it.
  // Buffers: gradients given as spans stay at their addresses as long as the object lives.
  // Errors: errc::invalid_argument (no gradients, empty ones, or no device). errc::mismatch on all ranks,
  // naming them, if they register different sizes or types.
  // Cost: allocates device memory, which may wait for the device.
  static task<data_parallel> create(communicator world, std::vector<device_values> gradients,
                                    data_parallel_options o = data_parallel_options());

  // Copies the contents of each piece from `root` to all ranks, as the initial state. Collective. It starts
  // after the work on `after`.
  // Completes: when the pieces have been copied.
  task<> broadcast(std::vector<device_values> pieces, int root, stream after) const;

  // Reports that gradient i, as registered, is complete when `after` reaches its current position, or with
  // the rest of its bucket. Does nothing during no_sync().
  // Buffers: the gradient's memory belongs to this object until reduced().
  // Errors: throws errc::invalid_argument if the gradient was already ready.
  void ready(std::size_t i, const stream& after);

  // Makes work enqueued on `on` from then on wait for the averages (or sums) of all gradients. Collective.
  // Gradients that were not reported ready are taken as the work now on `on` leaves them. To wait on the
  // host, `co_await on.reached()` afterwards.
  // Completes: when all work of the step is enqueued on the device.
  // Errors: those of all_reduce. The object has then failed, and later calls report that.
  // Cancellation: fails it on all ranks.
  task<> reduced(stream on);

  // Makes ready() do nothing as long as the guard lives. Several backward passes add up in the gradients, and
  // the pass after the guard is averaged with them.
  class [[nodiscard]] unsynchronised {
   public:
    explicit unsynchronised(data_parallel& of) noexcept;
    unsynchronised(const unsynchronised&) = delete;
    unsynchronised& operator=(const unsynchronised&) = delete;
    ~unsynchronised();

   private:
    data_parallel& of_;
  };
  unsynchronised no_sync() noexcept { return unsynchronised(*this); }

  // The number of buckets.
  std::size_t buckets() const noexcept;

 private:
  struct state;
  explicit data_parallel(std::shared_ptr<state> s) noexcept;
  state& usable() const;
  std::shared_ptr<state> state_;
};

// Compares the values of all ranks bit for bit. Collective. The processor hashes them after the work on
// `after`, from copies of one part at a time, in the order of the pieces. The hash equals that of the same
// values in host memory.
task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after);

}  // namespace tutti::gpu
