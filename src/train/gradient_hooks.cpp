// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/gradient_hooks.hpp>

#include "train/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tutti/convert.hpp>
#include <tutti/error.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>
#include <vector>

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
