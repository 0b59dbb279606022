// SPDX-License-Identifier: Apache-2.0
#include "train/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tutti/train/shuffle.hpp>

namespace tutti::train {
namespace {

// In eight sums, so that the compiler may vectorise it without reordering.
float dot(const float* a, const float* b, std::size_t n) {
  std::array<float, 8> sums{};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  float total = 0;
  for (const float s : sums) total += s;
  return total;
}

void add(float* to, const float* from, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

}  // namespace

void multiply(std::span<const float> m, std::size_t rows, std::span<const float> right, std::size_t rank,
              std::span<float> left) {
  const std::size_t columns = m.size() / rows;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k)
      left[k * rows + i] = dot(m.data() + i * columns, right.data() + k * columns, columns);
}

void multiply_transposed(std::span<const float> m, std::size_t rows, std::span<const float> left,
                         std::size_t rank, std::span<float> right) {
  const std::size_t columns = m.size() / rows;
  std::ranges::fill(right, 0.0F);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k)
      add(right.data() + k * columns, m.data() + i * columns, left[k * rows + i], columns);
}

void expand(std::span<const float> left, std::span<const float> right, std::size_t rank, std::size_t rows,
            std::span<float> m) {
  const std::size_t columns = m.size() / rows;
  std::ranges::fill(m, 0.0F);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k)
      add(m.data() + i * columns, right.data() + k * columns, left[k * rows + i], columns);
}

void orthonormalise(std::span<float> factor, std::size_t rank, std::uint64_t seed) {
  const std::size_t n = factor.size() / rank;
  random_bits bits(seed);
  for (std::size_t k = 0; k < rank; ++k) {
    float* const column = factor.data() + k * n;
    // A few times at most. A random column depends on the others only if there are as many as elements; it
    // then stays zero.
    for (int attempt = 0; attempt < 3; ++attempt) {
      const float before = std::sqrt(dot(column, column, n));
      // Twice, because once leaves the rounding errors of a difference of nearly equal vectors.
      for (int pass = 0; pass < 2; ++pass)
        for (std::size_t j = 0; j < k; ++j)
          add(column, factor.data() + j * n, -dot(column, factor.data() + j * n, n), n);
      const float length = std::sqrt(dot(column, column, n));
      if (std::isfinite(length) && length > 1e-5F * before && length > 1e-30F) {
        for (std::size_t i = 0; i < n; ++i) column[i] /= length;
        break;
      }
      if (!std::isfinite(before)) break;  // stays as it is, so that it is noticed
      for (std::size_t i = 0; i < n; ++i)
        column[i] = attempt == 2 ? 0.0F : static_cast<float>(2 * bits.uniform() - 1);
    }
  }
}

}  // namespace tutti::train
