// SPDX-License-Identifier: Apache-2.0
// data_parallel: averages gradients over the ranks while the backward pass computes the remaining ones.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>
#include <tutti/train/bucket.hpp>
#include <tutti/train/gradient_hooks.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// Options of data_parallel::create().
struct data_parallel_options {
  // User-provided for g++ 12, as that of init_options.
  data_parallel_options();

  // Bytes at which a bucket is full; the gradient that reaches the limit is its last. The first bucket is
  // smaller, so that communication starts early.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // `nullptr` averages without compression. A gpu::gradient_hook works on memory of a device. A gradient_hook
  // works on host memory, and for floats on a device on a copy of them in host memory. A hook belongs to one
  // data_parallel: it keeps state from step to step.
  std::shared_ptr<bucketing::any_gradient_hook> hook;
  // Sums instead of averaging: for gradients that each rank has divided by the samples of all ranks.
  bool sum = false;
  // Allows ranks to have different numbers of batches; see join_step().
  // Cost: one all_reduce of 16 bytes per step, which with a hook completes before the first bucket starts. On a
  // device also one pass over each bucket, two with weights, and buckets are issued one after the other.
  bool uneven = false;
};

// The time that averaging took in one step. On a device a bucket ends here when all of its work is enqueued.
struct averaging_times {
  // Bytes of gradients.
  std::uint64_t bytes = 0;
  // From the start of the first bucket to the end of the last.
  double communication_seconds = 0;
  // The part of communication that reduced() waited for, with no computation behind it.
  double exposed_seconds = 0;
  // The share of communication that computation overlapped, 0 to 1.
  double overlap() const noexcept;
};

// Gradients in host memory, for data_parallel::create().
bucketing::gradient_memory memory_of(const std::vector<gradient_view>& gradients);

// The gradients of one model, averaged over all ranks of a communicator in each step.
//
//   auto parallel = co_await tutti::data_parallel::create(world, gradients);
//   co_await parallel.broadcast(parameters);
//   for (each batch) {
//     auto backward = [&] { network.backward(batch, [&](std::size_t i) { parallel.ready(i); }); };
//     co_await tutti::compute(backward);
//     co_await parallel.reduced();
//     optimiser.step();
//   }
//
// Gradients on a device are gpu::device_values, and calls name the stream that computes them:
//
//   backward_kernels<<<..., compute.get()>>>(...);
//   parallel.ready(i, compute);
//   ...
//   co_await parallel.reduced(compute);  // the host goes on, `compute` waits for the averages
//   optimiser_kernels<<<..., compute.get()>>>(...);
//
// Gradients are put into buckets from the last to the first, the order in which a backward pass produces
// them; each bucket has one element type. The all_reduce of a bucket is issued when its last gradient is
// ready and all earlier buckets have started. So the order is the same on all ranks. On a device it starts
// after the work that computes those gradients, and overlaps later work. Gradients that are adjacent in
// memory are reduced in place. Others are copied into a bucket and back: in host memory by the threads that
// call ready() and reduced(), on a device by the device.
//
// Belongs to the loop thread of its communicator, except ready() of gradients in host memory. Move-only.
// Cancellation: destroying it with buckets in flight fails its own communicators on all ranks, and not `c`.
class data_parallel {
  struct state;

 public:
  data_parallel() noexcept;
  data_parallel(data_parallel&&) noexcept;
  data_parallel& operator=(data_parallel&&) noexcept;
  ~data_parallel();

  // Registers the gradients: gradient_view in host memory, or gpu::device_values after gpu::open(c). Collective
  // over `c`. It duplicates `c`, so that the program's own collectives keep their order.
  // Buffers: the gradients stay at their addresses as long as this lives. device_values keep a device_buffer alive.
  // Errors: errc::invalid_argument (no gradients, empty ones, a number of rows that does not divide the size,
  // a hook for other memory, or no device). errc::mismatch on all ranks, naming them, if they differ in sizes,
  // types or options: sizes of buckets, `sum`, `uneven`, or a hook of another kind of memory or none.
  // Cost: allocates memory for buckets that are not in place, which may wait for the device.
  template <class Gradient = gradient_view>
  static task<data_parallel> create(communicator c, const std::vector<Gradient>& gradients,
                                    data_parallel_options o = {}) {
    return create_in(std::move(c), memory_of(gradients), std::move(o));
  }

  // Copies the contents of each piece from `root` to all ranks, as the initial state. Collective.
  // Buffers: the pieces stay valid until completion.
  // Errors: those of broadcast.
  task<> broadcast(std::vector<std::span<float>> pieces, int root = 0) const;
  task<> broadcast(std::span<float> values, int root = 0) const {
    return broadcast(std::vector<std::span<float>>{values}, root);
  }
  // The same of gpu::device_values, after the work on `after`.
  template <class Values, extend::Stream S>
  task<> broadcast(std::vector<Values> pieces, int root, S after) const {
    return broadcast_pieces(averaged_over(), std::move(pieces), root, std::move(after));
  }

  // Reports that gradient i, as registered, is complete for this step; on a device, when `after` gets to this call.
  // Any thread may call it for host memory, one at a time for each gradient. Does nothing during no_sync().
  // Buffers: the gradient's memory belongs to this object until reduced() has completed.
  // Errors: throws errc::invalid_argument if the gradient was already ready, or for a stream of other memory.
  void ready(std::size_t i) { mark(i, nullptr); }
  template <extend::Stream S>
  void ready(std::size_t i, const S& after) {
    mark(i, &after);
  }

  // Waits until every gradient holds the average (or sum). Collective. Gradients without ready() are taken as
  // they are; so with no ready() at all, this averages after the backward pass.
  // Errors: those of all_reduce. The object has then failed, and later calls report that.
  // Cancellation: fails it on all ranks.
  task<> reduced() { return reduce(nullptr); }
  // The same on a device: makes work enqueued on `on` from then on wait for the averages. Gradients without
  // ready() are taken as the work now on `on` leaves them. `co_await on.reached()` then waits on the host.
  // Completes: when all work of the step is enqueued on the device.
  template <extend::Stream S>
  task<> reduced(S on) {
    co_await reduce(&on);
  }

  // Makes ready() do nothing as long as the guard lives. Several backward passes add up in the gradients, and
  // the pass after the guard is averaged with them.
  class [[nodiscard]] unsynchronised {
   public:
    explicit unsynchronised(const data_parallel& of) noexcept;
    unsynchronised(const unsynchronised&) = delete;
    unsynchronised& operator=(const unsynchronised&) = delete;
    ~unsynchronised();

   private:
    const std::shared_ptr<state> of_;
  };
  unsynchronised no_sync() noexcept { return unsynchronised(*this); }

  // Sets the weight of this rank's gradient in the average of this step, for example its number of samples; 1
  // without the call. A gradient of weight 0 is left out, even if it is NaN. Other products of gradients and weights
  // must be within the range of floats.
  // Errors: throws errc::invalid_argument without options::uneven, after the first ready() of a step, or for a
  // weight other than 0 and 1e-30 to 1e30.
  void begin_step(double weight);
  // Takes part in a step of the other ranks, for a rank without more batches. Only with options::uneven.
  // Returns true after such a step, with the others' average in this rank's gradients. Step the optimiser
  // then, so that the replicas stay the same. Returns false when no rank has batches left.
  //
  //   for (;;) { const bool more = co_await parallel.join_step(); if (!more) break; optimiser.step(); }
  task<bool> join_step() { return join(nullptr); }
  // The same on a device: work enqueued on `on` from then on waits for the average.
  template <extend::Stream S>
  task<bool> join_step(S on) {
    const bool more = co_await join(&on);
    co_return more;
  }

  // The number of buckets.
  std::size_t buckets() const noexcept;
  // The times of the last reduced().
  averaging_times last() const noexcept;

 private:
  explicit data_parallel(std::shared_ptr<state> s) noexcept;
  // A null stream is of host memory.
  static task<data_parallel> create_in(communicator c, bucketing::gradient_memory memory,
                                       data_parallel_options o);
  void mark(std::size_t i, const extend::stream* after);
  task<> reduce(const extend::stream* on);
  task<bool> join(const extend::stream* on);
  communicator averaged_over() const;
  state& usable() const;
  static task<> reduce_bucket(state& s, std::size_t i);
  std::shared_ptr<state> state_;
};

}  // namespace tutti
