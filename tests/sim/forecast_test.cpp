// SPDX-License-Identifier: Apache-2.0
// Computed times against simulated ones, where both exist.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <string>
#include <tutti/sim/forecast.hpp>

using namespace tutti;
using namespace tutti::sim;
using namespace std::chrono_literals;

namespace {

struct choice {
  pattern what;
  algorithm with;
};
constexpr choice choices[] = {{pattern::barrier, algorithm::dissemination},
                              {pattern::broadcast, algorithm::binomial},
                              {pattern::broadcast, algorithm::scatter_all_gather},
                              {pattern::reduce, algorithm::binomial},
                              {pattern::reduce, algorithm::ring},
                              {pattern::all_reduce, algorithm::recursive_doubling},
                              {pattern::all_reduce, algorithm::one_shot},
                              {pattern::all_reduce, algorithm::rabenseifner},
                              {pattern::all_reduce, algorithm::ring},
                              {pattern::all_gather, algorithm::ring},
                              {pattern::all_gather, algorithm::bruck},
                              {pattern::reduce_scatter, algorithm::ring},
                              {pattern::reduce_scatter, algorithm::direct},
                              {pattern::reduce_scatter, algorithm::bruck},
                              {pattern::all_to_all, algorithm::pairwise},
                              {pattern::all_to_all, algorithm::bruck}};

}  // namespace

TEST_CASE("forecast: computed times match simulated ones") {
  const network n;
  for (const choice& c : choices)
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{16'384}, std::size_t{262'144}})
      for (const int ranks : {2, 4, 6, 16}) {
        const forecast seen = simulate(c.what, c.with, bytes, ranks, n);
        const forecast computed = compute_forecast(c.what, c.with, bytes, ranks, n);
        const double ratio =
            static_cast<double>(computed.time.count()) / static_cast<double>(seen.time.count());
        const std::string which = std::string(name_of(c.what)) + " by " + tutti::name_of(c.with) + ", " +
                                  std::to_string(bytes) + " bytes, " + std::to_string(ranks) +
                                  " ranks: " + std::to_string(seen.time.count()) + " ns simulated, " +
                                  std::to_string(computed.time.count()) + " ns computed";
        // Exact if all ranks do the same steps; otherwise the formulas bound the longest path.
        const bool even = (ranks & (ranks - 1)) == 0;
        const bool overlaps = c.with == algorithm::scatter_all_gather || c.with == algorithm::pairwise ||
                              c.with == algorithm::direct || c.with == algorithm::one_shot ||
                              (c.what == pattern::reduce && c.with == algorithm::ring);
        const double off = overlaps ? 0.3 : even ? 0.01 : 0.5;
        CHECK_MESSAGE(std::abs(ratio - 1) < off, which);
        CHECK_MESSAGE(std::abs(seen.connections - computed.connections) <= 1, which);
        CHECK(seen.simulated);
        CHECK_FALSE(computed.simulated);
      }
}

TEST_CASE("forecast: up to 65,536 ranks, and more ranks never cost less") {
  const network n;
  for (const choice& c : choices) {
    duration before{0};
    for (int ranks = 128; ranks <= 65'536; ranks *= 8) {
      const forecast f = compute_forecast(c.what, c.with, 65'536, ranks, n);
      CHECK(f.time > before);
      CHECK(f.connections >= 2);
      CHECK(f.connections < ranks);
      before = f.time;
    }
  }
  const forecast small = predict(pattern::barrier, algorithm::automatic, 0, 16, n);
  CHECK(small.simulated);
  const forecast large = predict(pattern::barrier, algorithm::automatic, 0, 65'536, n);
  CHECK_FALSE(large.simulated);
  // 16 rounds of o + L + o and a header of 64 bytes.
  CHECK(large.time >= 16 * 6us);
  CHECK(large.time < 16 * 6us + 100ns);
}

TEST_CASE("forecast: many ranks get an algorithm that is among the best") {
  const network n;
  for (const pattern what : {pattern::broadcast, pattern::reduce, pattern::all_reduce, pattern::all_gather,
                             pattern::reduce_scatter, pattern::all_to_all})
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{1'024}, std::size_t{1} << 20})
      for (const int ranks : {128, 1'024, 4'096}) {
        const duration chosen = predict(what, algorithm::automatic, bytes, ranks, n).time;
        duration best = chosen;
        for (const choice& c : choices)
          if (c.what == what) best = std::min(best, compute_forecast(what, c.with, bytes, ranks, n).time);
        CAPTURE(name_of(what));
        CAPTURE(bytes);
        CAPTURE(ranks);
        CHECK(chosen <= 1.5 * best);
      }
}

TEST_CASE("forecast: invalid arguments are refused") {
  const network n;
  CHECK_THROWS_AS(simulate(pattern::barrier, algorithm::ring, 0, 4, n), error);
  CHECK_THROWS_AS(compute_forecast(pattern::all_reduce, algorithm::ring, 6, 4, n), error);
  CHECK_THROWS_AS(compute_forecast(pattern::barrier, algorithm::automatic, 0, 0, n), error);
}

TEST_CASE("forecast: an invalid network is refused, simulated or not") {
  const auto refused = [](const char* option, auto change) {
    network n;
    change(n);
    for (const auto& forecasting : {&simulate, &compute_forecast})
      CHECK_THROWS_WITH_AS(forecasting(pattern::all_reduce, algorithm::ring, 1024, 4, n),
                           doctest::Contains(option), error);
  };
  refused("network.latency", [](network& n) { n.latency = -1s; });
  refused("network.overhead", [](network& n) { n.overhead = -1ns; });
  refused("network.gap", [](network& n) { n.gap = never; });
  refused("network.bytes_per_second", [](network& n) { n.bytes_per_second = -1e9; });
  refused("network.bytes_per_second", [](network& n) { n.bytes_per_second = 1e-12; });
  refused("network.bytes_per_second", [](network& n) { n.bytes_per_second = std::nan(""); });
}
