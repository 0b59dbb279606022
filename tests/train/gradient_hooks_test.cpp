// SPDX-License-Identifier: Apache-2.0
// Hooks: their distance from the average, and the equality of ranks.
#include <tutti/train/data_parallel.hpp>

#include "support/local_world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tutti/train/replicas.hpp>
#include <tutti/train/shuffle.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

struct outcome {
  double relative_error = 0;  // of the last step
  double bias = 0;            // of the sum of all steps, relative
};

// A matrix of 40 x 30 and a vector, different on each rank; the same in each step.
task<> average_with(communicator world, std::shared_ptr<gradient_hook> hook, int steps, float scale,
                    outcome* out) {
  constexpr std::size_t rows = 40, columns = 30;
  std::vector<float> matrix(rows * columns), vector(17), mine(matrix.size() + vector.size());
  random_bits bits(static_cast<std::uint64_t>(world.rank()) + 1);
  for (float& v : mine) v = scale * static_cast<float>(2 * bits.uniform() - 1);
  std::vector<float> exact = mine;
  co_await world.all_reduce(exact, avg);
  data_parallel_options o;
  o.hook = std::move(hook);
  const std::vector<gradient_view> gradients{gradient_view(matrix, rows), gradient_view(vector)};
  data_parallel parallel = co_await data_parallel::create(world, gradients, o);
  std::vector<double> total(mine.size());
  outcome result;
  for (int step = 0; step < steps; ++step) {
    std::copy_n(mine.begin(), matrix.size(), matrix.begin());
    std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(matrix.size()), vector.size(), vector.begin());
    co_await parallel.reduced();
    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double got = static_cast<double>(i < matrix.size() ? matrix[i] : vector[i - matrix.size()]),
                   want = static_cast<double>(exact[i]);
      total[i] += got;
      wrong += (got - want) * (got - want);
      all += want * want;
    }
    result.relative_error = std::sqrt(wrong / all);
    const std::vector<std::span<const float>> pieces{matrix, vector};
    const replica_check check = co_await compare_replicas(world, pieces);
    TUTTI_EXPECT(check.agree());
  }
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double want = steps * static_cast<double>(exact[i]);
    wrong += (total[i] - want) * (total[i] - want);
    all += want * want;
  }
  result.bias = std::sqrt(wrong / all);
  if (world.rank() == 0) *out = result;
}

outcome with(const std::function<std::shared_ptr<gradient_hook>()>& hook, int steps = 1, float scale = 1) {
  outcome out;
  run_local(3,
            [&](communicator world) { return average_with(std::move(world), hook(), steps, scale, &out); });
  return out;
}

}  // namespace

TEST_CASE("gradient_hooks: identity is exact, halves round") {
  CHECK(with(identity_hook, 2).relative_error < 1e-6);
  CHECK(with(float16_hook, 2).relative_error < 1e-3);
  CHECK(with(bfloat16_hook, 2).relative_error < 1e-2);
  CHECK(with(bfloat16_hook, 2).relative_error > 1e-6);
}

TEST_CASE("gradient_hooks: a sum beyond float16's range does not become infinite") {
  CHECK(with(float16_hook, 1, 60'000).relative_error < 1e-3);
  CHECK(with(bfloat16_hook, 1, 1e30F).relative_error < 1e-2);
}

TEST_CASE("gradient_hooks: blocks of int8 round, and with error feedback their sum is right") {
  const auto hook = [](bool feedback) { return [=] { return int8_hook({.error_feedback = feedback}); }; };
  CHECK(with(hook(true), 2).relative_error < 2e-2);
  CHECK(with(hook(true), 2).relative_error > 1e-6);
  CHECK(with(hook(true), 2, 1e30F).relative_error < 2e-2);
  CHECK(with(hook(true), 60).bias < 0.1 * with(hook(false), 60).bias);
}

TEST_CASE("gradient_hooks: low rank is exact at first, then close, and with error feedback right in sum") {
  const auto hook = [](std::size_t rank, bool feedback, bool warm) {
    return [=] {
      low_rank_options o;
      o.rank = rank;
      o.exact_steps = 2;
      o.error_feedback = feedback;
      o.warm_start = warm;
      return low_rank_hook(o);
    };
  };
  CHECK(with(hook(2, true, true), 2).relative_error < 1e-6);
  // Random matrices have full rank: one step omits much.
  CHECK(with(hook(2, false, true), 3).relative_error > 0.5);
  CHECK(with(hook(2, false, true), 60).bias > 0.5);
  // Later steps add it.
  CHECK(with(hook(2, true, true), 300).bias < 0.15);
  CHECK(with(hook(2, true, false), 300).bias < 0.15);
  CHECK(with(hook(6, true, true), 60).bias < with(hook(1, true, true), 60).bias);
  // Exact if the thin factors are as large as the matrix.
  CHECK(with(hook(30, true, true), 5).relative_error < 1e-6);
}

TEST_CASE("gradient_hooks: a matrix of low rank is reproduced") {
  run_local(2, [](communicator world) -> task<> {
    constexpr std::size_t rows = 60, columns = 50;
    std::vector<float> matrix(rows * columns), nothing(rows * columns);
    low_rank_options low;
    low.rank = 1;
    low.exact_steps = 0;
    data_parallel_options o;
    o.hook = low_rank_hook(low);
    const std::vector<gradient_view> gradients{gradient_view(matrix, rows), gradient_view(nothing, rows)};
    data_parallel parallel = co_await data_parallel::create(world, gradients, o);
    double worst = 0;
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          matrix[i * columns + j] = static_cast<float>(world.rank() + 1) * std::sin(static_cast<float>(i)) *
                                    std::cos(static_cast<float>(j));
      co_await parallel.reduced();
      worst = 0;
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          worst = std::max(
              worst, std::abs(static_cast<double>(matrix[i * columns + j]) -
                              1.5 * std::sin(static_cast<double>(i)) * std::cos(static_cast<double>(j))));
      // A zero gradient stays zero, and does not stop later approximations.
      for (const float v : nothing) TUTTI_EXPECT(v == 0);
    }
    TUTTI_EXPECT(worst < 1e-4);
    for (std::size_t i = 0; i < nothing.size(); ++i) nothing[i] = static_cast<float>(i / columns + 1);
    co_await parallel.reduced();
    TUTTI_EXPECT(std::abs(nothing.back() - static_cast<float>(rows)) < 1e-2F);
  });
}

namespace {

// Rank 1 has a value that is not finite in step 1.
task<> bad_step(communicator world, float bad) {
  constexpr std::size_t rows = 60, columns = 50;
  std::vector<float> matrix(rows * columns);
  low_rank_options low;
  low.exact_steps = 0;
  data_parallel_options o;
  o.hook = low_rank_hook(low);
  const std::vector<gradient_view> gradients{gradient_view(matrix, rows)};
  data_parallel parallel = co_await data_parallel::create(world, gradients, o);
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < matrix.size(); ++i)
      matrix[i] = static_cast<float>(world.rank() + 1) * static_cast<float>(i / columns + i % columns);
    if (step == 1 && world.rank() == 1) matrix[70] = bad;
    co_await parallel.reduced();
    for (std::size_t i = 0; i < matrix.size(); ++i)
      TUTTI_EXPECT(step == 1
                       ? std::isnan(matrix[i])
                       : std::abs(matrix[i] - 1.5F * static_cast<float>(i / columns + i % columns)) < 0.1F);
  }
}

}  // namespace

TEST_CASE("gradient_hooks: low rank makes a matrix with an infinity or NaN NaN, for one step") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    run_local(2, [=](communicator world) { return bad_step(std::move(world), bad); });
}

namespace {

task<> one_step(communicator world, std::shared_ptr<gradient_hook> hook, std::size_t rows,
                std::size_t columns) {
  std::vector<float> matrix(rows * columns, 1), second(rows * columns, 1);
  data_parallel_options o;
  o.hook = std::move(hook);
  const std::vector<gradient_view> gradients{gradient_view(matrix, rows), gradient_view(second, rows)};
  data_parallel parallel = co_await data_parallel::create(world, gradients, o);
  co_await parallel.reduced();
  for (const float v : matrix) TUTTI_EXPECT(std::abs(v - 1) < 1e-2F);
}

}  // namespace

TEST_CASE("gradient_hooks: a hook may go on with another model") {
  low_rank_options low;
  low.rank = 1;
  low.exact_steps = 0;
  low.error_feedback = false;
  int8_options blocks;
  blocks.error_feedback = false;
  run_local(2, [=](communicator world) -> task<> {
    for (const auto& hook : {low_rank_hook(low), int8_hook(blocks)}) {
      co_await one_step(world, hook, 20, 20);
      co_await one_step(world, hook, 90, 70);
      co_await one_step(world, hook, 1, 30);
    }
  });
}

TEST_CASE("gradient_hooks: invalid options are refused") {
  low_rank_options o;
  o.rank = 0;
  CHECK_THROWS_AS(low_rank_hook(o), error);
}
