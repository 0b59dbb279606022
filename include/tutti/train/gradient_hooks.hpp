// SPDX-License-Identifier: Apache-2.0
// How data_parallel averages a bucket of gradients: exactly, in half the bytes or a quarter, or by matrices of
// low rank.
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

// Half the bytes. Sums are of floats, so that no average is too large for a float16 where the gradients are
// not. float16 keeps 11 bits of each number and loses what is below 6e-8; bfloat16 keeps 8 bits and the range
// of float.
std::shared_ptr<gradient_hook> float16_hook();
std::shared_ptr<gradient_hook> bfloat16_hook();

struct int8_options {
  bool error_feedback = true;  // what rounding leaves out is added to the next gradient
};
// A quarter of the bytes: a byte for each element, and a float for each block of 256, which says what one is
// worth: the largest magnitude of the block / 127. Each rank rounds its gradients and gives every other its
// blocks (a part of the bucket); a rank adds what it gets as floats, rounds the average of its blocks, and
// gives it to all. Both exchanges together send 2 (P-1)/P times 260 bytes for 256 elements, of P ranks.
//
// Each element of the result is off by at most M / 125, where M is the average over the ranks of the largest
// magnitude in its block, of gradients to which what was left out before has been added. That holds for
// magnitudes from 2e-36, below which they may become zero, to 3e38. With error feedback the sum of the results of all steps is off by no more than the
// last one. Blocks are cut from the bucket, so small gradients beside large ones lose most. Where a rank has
// an infinity or a NaN, the whole block becomes NaN, on all ranks; errors that were kept for it are dropped.
//
// Costs about five passes over the bucket on the loop thread, and with error feedback a copy of it.
std::shared_ptr<gradient_hook> int8_hook(int8_options o = {});

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
