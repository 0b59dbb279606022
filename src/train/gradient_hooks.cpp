// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/gradient_hooks.hpp>

#include "train/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tutti/convert.hpp>
#include <tutti/error.hpp>
#include <tutti/shared_memory.hpp>
#include <tutti/train/shuffle.hpp>
#include <utility>
#include <vector>

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

// Multiplies all by a power of two, so that no square of them leaves the range of a float.
void bring_near_one(std::span<float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  if (largest == 0 || !std::isfinite(largest)) return;
  const double scale = std::exp2(-std::ilogb(largest));
  for (float& v : values) v = static_cast<float>(v * scale);
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
      bring_near_one(std::span(column, n));
      const float before = std::sqrt(dot(column, column, n));
      // Twice, because once leaves the rounding errors of a difference of nearly equal vectors.
      for (int pass = 0; pass < 2; ++pass)
        for (std::size_t j = 0; j < k; ++j)
          add(column, factor.data() + j * n, -dot(column, factor.data() + j * n, n), n);
      const float length = std::sqrt(dot(column, column, n));
      if (std::isfinite(length) && length > 1e-5F * before) {
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

namespace tutti {
namespace {

class identity final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket) override { co_await c.all_reduce(bucket.data, avg); }
};

template <class Half>
class compressed final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket) override {
    shared_vector<Half>& half = memory_[bucket.index];
    half.resize(bucket.data.size());
    convert(bucket.data, half);
    co_await c.all_reduce(half, avg);
    convert(half, bucket.data);
  }

 private:
  std::map<std::size_t, shared_vector<Half>>
      memory_;  // of each bucket; a node does not move when others are added
};

// What one bucket keeps from step to step.
struct thin_bucket {
  struct matrix {
    std::span<float> values;
    std::size_t rows = 0, columns = 0;
    std::size_t left = 0;  // the start of its factors
    std::size_t right = 0;
    std::vector<float> error;
  };
  std::vector<matrix> matrices;
  std::vector<std::span<float>> exact;  // not approximated
  std::size_t lefts = 0;                // elements of all left factors; the exact part follows
  shared_vector<float> first, right;    // what is reduced first, and second
  std::uint64_t steps = 0;
};

class low_rank final : public gradient_hook {
 public:
  explicit low_rank(low_rank_options o) : options_(o) {
    if (o.rank == 0 || !(o.least_compression >= 1))
      throw error(errc::invalid_argument,
                  "low_rank_hook: a rank of at least 1, and a compression by at least 1");
  }

  task<> reduce(communicator c, gradient_bucket bucket) override {
    thin_bucket& b = memory_[bucket.index];
    if (b.steps++ < options_.exact_steps) {
      co_await c.all_reduce(bucket.data, avg);
      co_return;
    }
    lay_out(b, bucket);
    project(b);
    co_await c.all_reduce(b.first, avg);
    project_back(b);
    if (!b.matrices.empty()) co_await c.all_reduce(b.right, avg);
    reconstruct(b);
  }

 private:
  // Computes the layout; the gradients themselves may be elsewhere in each step.
  void lay_out(thin_bucket& b, const gradient_bucket& bucket) const {
    std::size_t lefts = 0, rights = 0, others = 0, m = 0;
    b.exact.clear();
    for (const gradient_view& g : bucket.gradients) {
      const std::size_t rows = g.rows, columns = g.values.size() / rows,
                        thin = (rows + columns) * options_.rank;
      if (rows == 1 ||
          static_cast<double>(thin) * options_.least_compression > static_cast<double>(g.values.size())) {
        b.exact.push_back(g.values);
        others += g.values.size();
        continue;
      }
      if (m == b.matrices.size()) b.matrices.emplace_back();
      thin_bucket::matrix& matrix = b.matrices[m++];
      matrix.values = g.values;
      matrix.rows = rows;
      matrix.columns = columns;
      matrix.left = std::exchange(lefts, lefts + rows * options_.rank);
      matrix.right = std::exchange(rights, rights + columns * options_.rank);
      if (options_.error_feedback && matrix.error.size() != g.values.size())
        matrix.error.assign(g.values.size(), 0.0F);  // that of another model is not this one's
    }
    b.matrices.resize(m);
    b.lefts = lefts;
    b.first.resize(lefts + others);
    b.right.resize(rights);
  }

  std::span<float> left_of(thin_bucket& b, const thin_bucket::matrix& m) const {
    return std::span(b.first).subspan(m.left, m.rows * options_.rank);
  }
  std::span<float> right_of(thin_bucket& b, const thin_bucket::matrix& m) const {
    return std::span(b.right).subspan(m.right, m.columns * options_.rank);
  }
  // The same on every rank.
  std::uint64_t seed_of(const thin_bucket& b, const thin_bucket::matrix& m) const {
    return options_.seed + 7919 * static_cast<std::uint64_t>(&m - b.matrices.data()) +
           (options_.warm_start ? 0 : 104'729 * b.steps);
  }

  void project(thin_bucket& b) const {
    if (!options_.warm_start) std::ranges::fill(b.right, 0.0F);
    for (thin_bucket::matrix& m : b.matrices) {
      for (std::size_t i = 0; i < m.error.size(); ++i) m.values[i] += m.error[i];
      train::orthonormalise(right_of(b, m), options_.rank, seed_of(b, m));
      train::multiply(m.values, m.rows, right_of(b, m), options_.rank, left_of(b, m));
    }
    float* at = b.first.data() + b.lefts;
    for (const std::span<float> exact : b.exact) at = std::ranges::copy(exact, at).out;
  }

  void project_back(thin_bucket& b) const {
    for (thin_bucket::matrix& m : b.matrices) {
      train::orthonormalise(left_of(b, m), options_.rank, seed_of(b, m) + 1);
      train::multiply_transposed(m.values, m.rows, left_of(b, m), options_.rank, right_of(b, m));
    }
  }

  void reconstruct(thin_bucket& b) const {
    for (thin_bucket::matrix& m : b.matrices) {
      if (!m.error.empty()) std::ranges::copy(m.values, m.error.begin());
      train::expand(left_of(b, m), right_of(b, m), options_.rank, m.rows, m.values);
      // The result is the same on all ranks, so all decide alike.
      if (std::ranges::all_of(m.values, [](float v) { return std::isfinite(v); })) {
        for (std::size_t i = 0; i < m.error.size(); ++i) m.error[i] -= m.values[i];
      } else {
        std::ranges::fill(m.values, std::numeric_limits<float>::quiet_NaN());
        std::ranges::fill(m.error, 0.0F);
        std::ranges::fill(right_of(b, m), 0.0F);  // the next step starts from random columns
      }
    }
    const float* at = b.first.data() + b.lefts;
    for (const std::span<float> exact : b.exact) {
      std::copy_n(at, exact.size(), exact.begin());
      at += exact.size();
    }
  }

  const low_rank_options options_;
  std::map<std::size_t, thin_bucket> memory_;
};

}  // namespace

std::shared_ptr<gradient_hook> identity_hook() { return std::make_shared<identity>(); }
std::shared_ptr<gradient_hook> float16_hook() { return std::make_shared<compressed<float16>>(); }
std::shared_ptr<gradient_hook> bfloat16_hook() { return std::make_shared<compressed<bfloat16>>(); }
std::shared_ptr<gradient_hook> low_rank_hook(low_rank_options o) { return std::make_shared<low_rank>(o); }

}  // namespace tutti
