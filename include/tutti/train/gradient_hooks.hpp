// SPDX-License-Identifier: Apache-2.0
// How data_parallel averages a bucket of gradients: exactly, in half the bytes, or by matrices of low rank.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tutti {

// The gradient of one parameter, borrowed: a matrix of `rows` rows, one behind the other, or (with one row) a
// vector.
struct gradient_view {
  gradient_view() noexcept = default;
  gradient_view(std::span<float> v, std::size_t r = 1) noexcept : values(v), rows(r) {}

  std::span<float> values;
  std::size_t rows = 1;
};

// Gradients that travel together.
struct gradient_bucket {
  std::size_t index = 0;                     // in the order in which buckets start
  std::span<float> data;                     // all of them, one behind the other
  std::span<const gradient_view> gradients;  // each, inside of data
};

// Derive from it for a way of your own.
class gradient_hook {
 public:
  virtual ~gradient_hook() = default;
  // Makes bucket.data the average over the ranks of `c`, exactly or nearly, the same bits on all of them.
  // Called on the loop thread, once for each bucket and step, for several buckets at once; `c` is the
  // bucket's own, so that its collectives keep their order. What bucket points to stays until the task has
  // ended.
  virtual task<> reduce(communicator c, gradient_bucket bucket) = 0;
};

// all_reduce(avg): what data_parallel does without a hook.
std::shared_ptr<gradient_hook> identity_hook();

// Half the bytes. Each rank's part is divided by the number of ranks first, so that no sum is too large for a
// float16 where the gradients are not. float16 keeps 11 bits of each number and loses what is below 6e-8;
// bfloat16 keeps 8 bits and the range of float.
std::shared_ptr<gradient_hook> float16_hook();
std::shared_ptr<gradient_hook> bfloat16_hook();

struct low_rank_options {
  std::size_t rank = 2;          // of the approximation
  std::size_t exact_steps = 10;  // at first, while gradients change most
  double least_compression =
      2;                       // matrices that would not shrink so much are averaged exactly, as vectors are
  bool error_feedback = true;  // what an approximation leaves out is added to the next gradient
  bool warm_start = true;      // begin from the last approximation
  std::uint64_t seed = 1;
};
// PowerSGD (Vogels, Karimireddy, Jaggi 2019): each matrix as a product of two thin ones, of which rows * rank
// and columns * rank numbers travel. Costs three passes over each matrix for each unit of rank, on the loop
// thread, and (for the error) a copy of it.
std::shared_ptr<gradient_hook> low_rank_hook(low_rank_options o = {});

}  // namespace tutti
