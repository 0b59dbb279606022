// SPDX-License-Identifier: Apache-2.0
// The average by blocks of int8: its error bound, the same bits on all ranks, a quarter of the bytes.
#include <tutti/train/gradient_hooks.hpp>

#include "support/local_world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tutti/counters.hpp>
#include <tutti/train/shuffle.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t block = 256;

enum class content { random, zeros, one_large, denormal, huge, ranks_differ };

std::vector<float> gradients(content what, int rank, std::size_t n, std::uint64_t step = 0) {
  random_bits bits(static_cast<std::uint64_t>(rank) * 1000 + n + step * 77'777);
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(2 * bits.uniform() - 1);
    switch (what) {
      case content::random:
        all[i] = v;
        break;
      case content::zeros:
        all[i] = 0;
        break;
      case content::one_large:
        all[i] = i % block == 9 ? 1e4F : v;
        break;
      case content::denormal:
        all[i] = v * 1e-41F;
        break;
      case content::huge:
        all[i] = v * 3e38F;
        break;
      case content::ranks_differ:  // cancel each other, with very different scales
        all[i] = (rank % 2 == 0 ? 1.0F : -1.0F) * std::pow(10.0F, static_cast<float>(rank)) * v;
        break;
    }
  }
  return all;
}

task<> reduce(communicator world, std::shared_ptr<gradient_hook> hook, std::span<float> data) {
  gradient_bucket bucket;
  bucket.data = data;
  const gradient_view whole(data);
  bucket.gradients = {&whole, 1};
  co_await hook->reduce(std::move(world), bucket);
}

task<> expect_the_same_everywhere(communicator world, std::vector<float> data) {
  std::vector<float> first = data;
  co_await world.broadcast(first, 0);
  if (!data.empty()) TUTTI_EXPECT(std::memcmp(first.data(), data.data(), data.size() * sizeof(float)) == 0);
}

// The largest magnitudes of blocks, averaged over the ranks.
std::vector<double> magnitudes(const std::vector<std::vector<float>>& of_ranks) {
  const std::size_t n = of_ranks[0].size();
  std::vector<double> all((n + block - 1) / block);
  for (const std::vector<float>& one : of_ranks)
    for (std::size_t b = 0; b < all.size(); ++b) {
      double most = 0;
      for (std::size_t i = b * block; i < std::min(n, (b + 1) * block); ++i)
        most = std::max(most, std::abs(static_cast<double>(one[i])));
      all[b] += most / static_cast<double>(of_ranks.size());
    }
  return all;
}

task<> within_bound(communicator world, content what, std::size_t n) {
  std::vector<std::vector<float>> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(gradients(what, r, n));
  std::vector<float> got = all[static_cast<std::size_t>(world.rank())];
  co_await reduce(world, int8_hook({.error_feedback = false}), got);
  co_await expect_the_same_everywhere(world, got);
  const std::vector<double> most = magnitudes(all);
  for (std::size_t i = 0; i < n; ++i) {
    double exact = 0;
    for (const std::vector<float>& one : all) exact += static_cast<double>(one[i]) / world.size();
    TUTTI_EXPECT(std::abs(static_cast<double>(got[i]) - exact) <= most[i / block] / 125 + 4e-36);
    if (world.size() == 1) TUTTI_EXPECT(got[i] == all[0][i]);
  }
}

std::uint64_t bytes_sent(const communicator& world) {
  std::uint64_t all = 0;
  for (const peer_counters& p : peer_counters_of(world)) all += p.bytes_sent;
  return all;
}

}  // namespace

TEST_CASE("int8_hook: within its error bound, and the same bits on all ranks, for any contents") {
  for (const int ranks : {1, 2, 3, 5})
    for (const content what : {content::random, content::zeros, content::one_large, content::denormal,
                               content::huge, content::ranks_differ}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(what));
      CHECK_NOTHROW(run_local(ranks, [what](communicator world) -> task<> {
        // With fewer blocks than ranks, and with many; whole and partial.
        for (const std::size_t n :
             {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 4 * block, std::size_t{5000}})
          co_await within_bound(world, what, n);
      }));
    }
}

TEST_CASE("int8_hook: an infinity or NaN makes its block NaN, on all ranks, for one step") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    run_local(3, [bad](communicator world) -> task<> {
      const auto hook = int8_hook();
      for (int step = 0; step < 2; ++step) {
        std::vector<float> data = gradients(content::random, world.rank(), 1000);
        if (world.rank() == 1 && step == 0) data[300] = bad;
        co_await reduce(world, hook, data);
        co_await expect_the_same_everywhere(world, data);
        for (std::size_t i = 0; i < data.size(); ++i)
          TUTTI_EXPECT(std::isnan(data[i]) == (step == 0 && i / block == 1));
      }
    });
}

TEST_CASE("int8_hook: with error feedback, the sum of all steps is right") {
  for (const bool feedback : {true, false}) {
    double worst = 0;
    run_local(3, [feedback, &worst](communicator world) -> task<> {
      constexpr std::size_t n = 1000;
      const auto hook = int8_hook({.error_feedback = feedback});
      std::vector<double> total(n);
      std::vector<double> exact(n);
      // The same values 40 times: the same error each time, unless it is fed back.
      for (int step = 0; step < 40; ++step) {
        std::vector<float> data = gradients(content::one_large, world.rank(), n);
        co_await reduce(world, hook, data);
        for (std::size_t i = 0; i < n; ++i) total[i] += static_cast<double>(data[i]);
        for (int r = 0; r < world.size(); ++r) {
          const std::vector<float> theirs = gradients(content::one_large, r, n);
          for (std::size_t i = 0; i < n; ++i) exact[i] += static_cast<double>(theirs[i]) / world.size();
        }
        // In one step, up to the errors of two: all steps have the same exact average.
        for (std::size_t i = 0; i < n; ++i)
          TUTTI_EXPECT(std::abs(static_cast<double>(data[i]) - exact[i] / (step + 1)) < 2.2e4 / 125);
      }
      if (world.rank() != 0) co_return;
      for (std::size_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(total[i] - exact[i]));
    });
    // One step's bound is 1e4 / 125; errors of earlier steps enlarge magnitudes a little.
    if (feedback) CHECK(worst < 1.1e4 / 125);
    if (!feedback) CHECK(worst < 40 * 1e4 / 125);
  }
}

TEST_CASE("int8_hook: floats need a quarter of the bytes over TCP, halves a half") {
  run_local(4, over("tcp"), [](communicator world) -> task<> {
    constexpr std::size_t n = 1024 * block;
    std::vector<float> data(n, 1.0F);
    struct way {
      std::shared_ptr<gradient_hook> hook;
      std::uint64_t bytes;  // for 256 elements
    };
    const std::vector<way> ways = {{identity_hook(), 4 * block},
                                   {float16_hook(), 2 * block},
                                   {bfloat16_hook(), 2 * block},
                                   {int8_hook(), block + sizeof(float)}};
    for (const way& each : ways) {
      co_await reduce(world, each.hook, data);  // makes the connections
      co_await world.barrier();
      const std::uint64_t before = bytes_sent(world);
      co_await reduce(world, each.hook, data);
      const std::uint64_t sent = bytes_sent(world) - before;
      const std::uint64_t payload = 2 * 3 * (n / block / 4) * each.bytes;
      TUTTI_EXPECT(sent >= payload && sent < payload + payload / 100);
    }
  });
}
