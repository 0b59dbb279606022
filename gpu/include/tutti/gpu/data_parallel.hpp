// SPDX-License-Identifier: Apache-2.0
// data_parallel on devices: gradients that are averaged over the ranks while the device still computes the
// rest of them.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/task.hpp>
#include <tutti/train/replicas.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::gpu {

struct data_parallel_options {
  data_parallel_options() noexcept {}

  // A bucket is full with the gradient that reaches this size. The first is smaller, so that communication
  // begins early.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::shared_ptr<gradient_hook> hook;  // null: averages without compression
  // The sum and not the average: for gradients that each rank has divided by the samples of all ranks.
  bool sum = false;
};

// The gradients of one model on a device, registered once, averaged over all ranks of a communicator in each
// step.
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
// Gradients are put into buckets from the last to the first, those of one element type together. A bucket's
// all_reduce is started when its last gradient has been said to be ready and the buckets before it have
// started, so in the same order on all ranks; it begins when what computes those gradients has passed, and
// goes on beside what comes later. Gradients that lie one behind the other in memory are reduced in place,
// others are copied into a bucket of the device's memory and back.
//
// Belongs to the loop thread of its device. Move-only. Destroyed with buckets in flight it cancels them, on
// all ranks.
class data_parallel {
 public:
  data_parallel() noexcept;
  data_parallel(data_parallel&&) noexcept;
  data_parallel& operator=(data_parallel&&) noexcept;
  ~data_parallel();

  // Collective over `world`, for whose world gpu::open has opened devices. Averages over a communicator of its
  // own: the program's collectives go on beside. Gradients that were given as spans stay where they are as long
  // as this lives. Allocates memory of the device, which may wait for it. Errors: errc::invalid_argument (no
  // gradients, empty ones, no device), errc::mismatch on all ranks when they register different sizes or types,
  // naming the ranks.
  static task<data_parallel> create(communicator world, std::vector<device_values> gradients,
                                    data_parallel_options o = data_parallel_options());

  // Collective. The initial state: what `root` has in each piece, to all ranks; begins after what is on
  // `after`, and completes when the pieces are there.
  task<> broadcast(std::vector<device_values> pieces, int root, stream after) const;

  // Gradient i, as registered, is complete when `after` gets to where it is now (or a little later: with its
  // bucket). Until reduced() its memory belongs to this. During no_sync() it does nothing. Throws
  // errc::invalid_argument when it was ready.
  void ready(std::size_t i, const stream& after);

  // Collective. Completes when all of the step is in the device's hands: what is enqueued on `on` from then
  // on comes after the averages (or sums) of all gradients. For the host, `co_await on.reached()` then.
  // Gradients that were not said to be ready are taken as what is on `on` now leaves them. Errors: those of
  // all_reduce; this is then failed, and says so. Cancelling fails it on all ranks.
  task<> reduced(stream on);

  // As long as the guard lives, ready() does nothing: several backward passes add up in the gradients, and
  // the one after is averaged with them.
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

  std::size_t buckets() const noexcept;

 private:
  struct state;
  explicit data_parallel(std::shared_ptr<state> s) noexcept;
  state& usable() const;
  std::shared_ptr<state> state_;
};

// Collective: whether the ranks' values are the same, bit for bit. They are hashed by the processor, from
// copies of a part at a time, in the order of the pieces, after what is on `after`; the hash is that of the
// same values in the host's memory.
task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after);

}  // namespace tutti::gpu
