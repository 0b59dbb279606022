// SPDX-License-Identifier: Apache-2.0
// Thin factors: products and orthonormal columns, against their definitions.
#include "train/low_rank.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tutti/train/shuffle.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  random_bits bits(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(2 * bits.uniform() - 1);
  return values;
}

double dot(const std::vector<float>& f, std::size_t n, std::size_t a, std::size_t b) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += static_cast<double>(f[a * n + i]) * static_cast<double>(f[b * n + i]);
  return sum;
}

}  // namespace

TEST_CASE("low_rank: products match their definitions") {
  for (const std::size_t rows : {1u, 3u, 17u})
    for (const std::size_t columns : {1u, 8u, 21u}) {
      constexpr std::size_t rank = 2;
      const auto m = random_values(rows * columns, 1), right = random_values(columns * rank, 2),
                 left = random_values(rows * rank, 3);
      std::vector<float> product(rows * rank), transposed(columns * rank, 5.0F), whole(rows * columns, 5.0F);
      multiply(m, rows, right, rank, product);
      multiply_transposed(m, rows, left, rank, transposed);
      expand(left, right, rank, rows, whole);
      for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t i = 0; i < rows; ++i) {
          float sum = 0;
          for (std::size_t j = 0; j < columns; ++j) sum += m[i * columns + j] * right[k * columns + j];
          CHECK(product[k * rows + i] == doctest::Approx(sum).epsilon(1e-4));
        }
        for (std::size_t j = 0; j < columns; ++j) {
          float sum = 0;
          for (std::size_t i = 0; i < rows; ++i) sum += m[i * columns + j] * left[k * rows + i];
          CHECK(transposed[k * columns + j] == doctest::Approx(sum).epsilon(1e-4));
        }
      }
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          CHECK(whole[i * columns + j] ==
                doctest::Approx(left[i] * right[j] + left[rows + i] * right[columns + j]).epsilon(1e-4));
    }
}

TEST_CASE("low_rank: columns of any finite length have the same direction as of length 1") {
  constexpr std::size_t n = 20, rank = 3;
  const std::vector<float> given = random_values(n * rank, 9);
  for (const float factor : {1e-35F, 1e-25F, 1e17F, 1e37F}) {
    CAPTURE(factor);
    std::vector<float> scaled = given, plain = given;
    for (float& v : scaled) v *= factor;
    orthonormalise(scaled, rank, 7);
    orthonormalise(plain, rank, 7);
    for (std::size_t i = 0; i < scaled.size(); ++i)
      CHECK(scaled[i] == doctest::Approx(plain[i]).epsilon(1e-4).scale(1));
  }
}

TEST_CASE("low_rank: columns become orthonormal, even if they are zero or dependent") {
  constexpr std::size_t n = 20, rank = 4;
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    std::vector<float> factor = random_values(n * rank, 9);
    if (kind == 1) std::fill(factor.begin(), factor.end(), 0.0F);
    if (kind == 2)
      for (std::size_t i = 0; i < n; ++i) factor[2 * n + i] = 3 * factor[i] - factor[n + i];
    std::vector<float> again = factor;
    orthonormalise(factor, rank, 42);
    orthonormalise(again, rank, 42);
    CHECK(factor == again);
    for (std::size_t a = 0; a < rank; ++a)
      for (std::size_t b = 0; b < rank; ++b)
        CHECK(dot(factor, n, a, b) == doctest::Approx(a == b ? 1.0 : 0.0).epsilon(1e-4));
  }
  // More columns than dimensions.
  std::vector<float> full = random_values(2 * 3, 1);
  orthonormalise(full, 3, 1);
  CHECK(dot(full, 2, 0, 0) == doctest::Approx(1));
  for (const float v : full) CHECK(std::isfinite(v));
}

TEST_CASE("low_rank: NaNs stay visible") {
  std::vector<float> factor(8, NAN);
  orthonormalise(factor, 2, 1);
  CHECK(std::isnan(factor[0]));
}
