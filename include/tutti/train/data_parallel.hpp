// SPDX-License-Identifier: Apache-2.0
// data_parallel: gradients that are averaged over the ranks while the backward pass still computes the rest
// of them.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>
#include <tutti/train/gradient_hooks.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

struct data_parallel_options {
  // Not an aggregate: g++ 12 destroys braced temporaries in co_await expressions twice.
  data_parallel_options();

  // A bucket is full with the gradient that reaches this size. The first is smaller, so that communication
  // begins early.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::shared_ptr<gradient_hook> hook;  // null: averages without compression
  // The sum and not the average: for gradients that each rank has divided by the samples of all ranks.
  bool sum = false;
  // Ranks may have different numbers of batches: see join_step(). Costs one all_reduce of 16 bytes a step.
  bool uneven = false;
};

// Where the time of one step's averaging went.
struct averaging_times {
  std::uint64_t bytes = 0;           // of gradients
  double communication_seconds = 0;  // from the start of the first bucket to the end of the last
  double exposed_seconds = 0;        // of those, that reduced() waited for: nothing else was computed
  // The part of communication that was behind computation, 0 to 1.
  double overlap() const noexcept;
};

// The gradients of one model, registered once, averaged over all ranks of a communicator in each step.
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
// Gradients are put into buckets from the last to the first, which is the order that a backward pass makes
// them in. A bucket's all_reduce starts when its last gradient is ready and the buckets before it have
// started: so the order is the same on all ranks. Gradients that lie one behind the other in memory are
// reduced in place; others are copied into a bucket and back, on the threads of ready() and reduced().
//
// Belongs to the loop thread of its communicator, but for ready(). Move-only. Destroyed with buckets in
// flight it fails its own communicators on all ranks; `c` stays good.
class data_parallel {
 public:
  data_parallel() noexcept;
  data_parallel(data_parallel&&) noexcept;
  data_parallel& operator=(data_parallel&&) noexcept;
  ~data_parallel();

  // Collective over `c`, of which it makes duplicates, so that collectives of the program's own keep their
  // order. The gradients' memory stays where it is as long as this lives. Errors: errc::invalid_argument (no
  // gradients, a number of rows that does not divide the size), errc::mismatch on all ranks when they
  // register different sizes, naming the ranks.
  static task<data_parallel> create(communicator c, std::vector<gradient_view> gradients,
                                    data_parallel_options o = {});

  // Collective. The initial state: what `root` has in each piece, to all ranks.
  task<> broadcast(std::vector<std::span<float>> pieces, int root = 0) const;
  task<> broadcast(std::span<float> values, int root = 0) const {
    return broadcast(std::vector<std::span<float>>{values}, root);
  }

  // Gradient i, as registered, is complete for this step. From any thread, one at a time for each gradient;
  // not during no_sync(), where it does nothing. Until reduced() has completed its memory belongs to this.
  // Throws errc::invalid_argument when it was ready already.
  void ready(std::size_t i);

  // Collective. Completes when every gradient holds the average (or sum). Gradients that were not said to be
  // ready are taken as they are: without any ready() this is the averaging after the backward pass. Errors:
  // those of all_reduce; this is then failed, and says so. Cancelling fails it on all ranks.
  task<> reduced();

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

  // Only with options::uneven, before the first ready() of a step: how much this rank's gradient counts (the
  // samples of its batch, for example); 1 without it. The average is weighted by it.
  void begin_step(double weight);
  // Only with options::uneven, for ranks that have no more batches: takes part in a step of the others.
  // Completes with true, and the average of their gradients in this rank's: step the optimiser, so that the
  // replicas stay the same. Completes with false when no rank has batches left.
  //
  //   for (;;) { const bool more = co_await parallel.join_step(); if (!more) break; optimiser.step(); }
  task<bool> join_step();

  std::size_t buckets() const noexcept;
  // Of the last reduced().
  averaging_times last() const noexcept;

 private:
  struct state;
  explicit data_parallel(std::shared_ptr<state> s) noexcept;
  state& usable() const;
  static task<> reduce_bucket(state& s, std::size_t i);
  std::shared_ptr<state> state_;
};

}  // namespace tutti
