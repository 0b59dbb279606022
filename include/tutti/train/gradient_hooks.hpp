// SPDX-License-Identifier: Apache-2.0
// How data_parallel averages a bucket: exactly, in half or a quarter of the bytes, or by low-rank matrices.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>
#include <tutti/train/bucket.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tutti {

// The gradient of one parameter, borrowed: a matrix of `rows` consecutive rows, or a vector (one row).
struct gradient_view {
  gradient_view() noexcept = default;
  gradient_view(std::span<float> v, std::size_t r = 1) noexcept : values(v), rows(r) {}

  std::span<float> values;
  std::size_t rows = 1;
};

// Gradients that are averaged together.
struct gradient_bucket {
  // Position in the order in which buckets start.
  std::size_t index = 0;
  // All gradients of the bucket, one behind the other.
  std::span<float> data;
  // Each gradient, inside `data`.
  std::span<const gradient_view> gradients;
};

// Averages buckets of floats in host memory. Derive from it to write a hook of your own.
class gradient_hook : public bucketing::any_gradient_hook {
 public:
  // Replaces bucket.data by the average over the ranks of `c`, exact or approximate, with the same bits on
  // all ranks. Called on the loop thread, once per bucket and step, for several buckets at once. `c` belongs
  // to the bucket, so collectives of several buckets keep their order.
  // Buffers: those of `bucket` stay valid until the task has ended.
  virtual task<> reduce(communicator c, gradient_bucket bucket) = 0;
};

// Averages by all_reduce(avg), as data_parallel does without a hook.
std::shared_ptr<gradient_hook> identity_hook();

// Average in half the bytes. Sums are computed in float, so an average overflows float16 only if a gradient does.
// float16 keeps 11 bits of each number and loses values below 6e-8; bfloat16 keeps 8 bits and the range of float.
std::shared_ptr<gradient_hook> float16_hook();
std::shared_ptr<gradient_hook> bfloat16_hook();

struct int8_options {
  bool error_feedback = true;  // what rounding leaves out is added to the next gradient
};
// Averages in a quarter of the bytes: one byte per element, and one float per block of 256 elements. The float
// is the value of one step: the largest magnitude of the block / 127.
// Each rank rounds its gradients and sends every other rank that rank's part of the bucket. A rank adds the
// parts it receives as floats, rounds the average of its part, and sends it to all. For P ranks both exchanges
// send 2 (P-1)/P times 260 bytes per 256 elements.
//
// Rounding changes each element of the result by at most M / 125. M is the largest magnitude in its block,
// averaged over the ranks, after the errors of earlier steps have been added. This holds for magnitudes from
// 2e-36, below which elements may become zero, to 3e38. Without error feedback, the result is off the exact
// average of its step by at most M / 125. With it, the error of the step before is added: at most the sum of
// M / 125 of both steps, about twice as much. The sum of the results of all steps is off the sum of the exact
// averages by at most M / 125 of the last step. Small gradients that share a block with large ones lose most.
// A block with an infinity or a NaN on a rank becomes NaN on all ranks, and its kept errors are dropped.
// Cost: about five passes over the bucket on the loop thread; with error feedback also a copy of it.
std::shared_ptr<gradient_hook> int8_hook(int8_options o = {});

struct low_rank_options {
  // Rank of the approximation.
  std::size_t rank = 2;
  // First steps that are averaged exactly, while gradients change most.
  std::size_t exact_steps = 10;
  // Matrices that would shrink by a smaller factor are averaged exactly, like vectors.
  double least_compression = 2;
  // Adds what an approximation left out to the next gradient.
  bool error_feedback = true;
  // Starts from the last approximation.
  bool warm_start = true;
  std::uint64_t seed = 1;
};
// PowerSGD (Vogels, Karimireddy, Jaggi 2019): approximates each matrix by a product of two thin ones. Ranks
// exchange rows * rank and columns * rank numbers.
//
// A matrix with an infinity or a NaN on a rank becomes NaN on all ranks for this step; its kept error and last
// approximation are dropped.
// Cost: three passes over each matrix on the loop thread per unit of rank; with error feedback, a copy of it.
std::shared_ptr<gradient_hook> low_rank_hook(low_rank_options o = {});

}  // namespace tutti
