// SPDX-License-Identifier: Apache-2.0
#include "common/comparison.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace {

constexpr double c_ns = 50, x_ns = 240;

perf::launch launched(const char* peer, double median_us, double before_ns, double after_ns,
                      std::size_t bytes = 8) {
  perf::report r;
  r.program = peer;
  r.command = "latency";
  r.transport = "shm";
  r.ranks = r.cores = 2;
  if (std::string(peer) == "tutti-shared") r.memory = "shared";
  perf::row row;
  row.bytes = bytes;
  row.median_us = median_us;
  row.mean_us = 10 * median_us;
  row.line_before_ns = before_ns;
  row.line_after_ns = after_ns;
  r.rows = {row};
  return {peer, r};
}
perf::launch in_c(const char* peer, double median_us, std::size_t bytes = 8) {
  return launched(peer, median_us, c_ns, c_ns, bytes);
}

}  // namespace

TEST_CASE("a rival is compared with our launch just before it") {
  const perf::benchmark of{
      "latency.2.shm",
      {in_c("tutti", 1), in_c("a", 2), in_c("tutti", 10), in_c("a", 10), in_c("tutti", 3), in_c("a", 2)}};
  const auto rows = perf::compare(of);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].ratio.median == doctest::Approx(1.0));
  CHECK(rows[0].ratio.min == doctest::Approx(0.5));
  CHECK(rows[0].ratio.max == doctest::Approx(1.5));
  CHECK(rows[0].own.us.median == doctest::Approx(3));
  CHECK(rows[0].rival.us.median == doctest::Approx(2));
  CHECK(rows[0].rival.peer == "a");
  CHECK(rows[0].pairs == 3);
  CHECK(rows[0].place == "C");
}

TEST_CASE("the comparison is with the fastest rival, and the limit is no rival") {
  const perf::benchmark of{
      "latency.2.shm",
      {in_c("tutti", 4), in_c("slow", 8), in_c("tutti", 3), in_c("fast", 6), in_c("limit", 1)}};
  const auto rows = perf::compare(of);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].rival.peer == "fast");
  CHECK(rows[0].ratio.median == doctest::Approx(0.5));
  CHECK(rows[0].others.size() == 2);
  CHECK(rows[0].limit_us == doctest::Approx(1));
  REQUIRE(rows[0].verdicts.size() == 1);
  CHECK(rows[0].verdicts[0].met);
  CHECK(rows[0].verdicts[0].against == "fast");
}

TEST_CASE("each placement has its row; pairs with different or changing placements are left out") {
  const perf::benchmark of{"latency.2.shm",
                           {in_c("tutti", 1), in_c("a", 2), in_c("tutti", 1), launched("a", 8, x_ns, x_ns),
                            launched("tutti", 1, x_ns, x_ns), launched("a", 4, x_ns, x_ns),
                            launched("tutti", 1, c_ns, x_ns), launched("a", 9, c_ns, x_ns)}};
  const auto rows = perf::compare(of);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].place == "C");
  CHECK(rows[0].pairs == 1);
  CHECK(rows[0].left_out == 2);
  CHECK(rows[0].ratio.median == doctest::Approx(0.5));
  CHECK(rows[1].place == "X");
  CHECK(rows[1].left_out == 0);
  CHECK(rows[1].ratio.median == doctest::Approx(0.25));
}

TEST_CASE("no target is met without a launch of every rival") {
  const perf::benchmark of{"latency.2.shm",
                           {in_c("tutti", 1), in_c("a", 9), in_c("tutti", 1), launched("b", 9, x_ns, x_ns)}};
  const auto rows = perf::compare(of);
  REQUIRE(rows.size() == 1);
  CHECK_FALSE(rows[0].complete);
  REQUIRE(rows[0].verdicts.size() == 1);
  CHECK_FALSE(rows[0].verdicts[0].met);
  CHECK(rows[0].verdicts[0].against.empty());
}

TEST_CASE("if no pair has a single placement all are used, and the row says so") {
  const auto rows = perf::compare({"x", {in_c("tutti", 1), launched("a", 2, x_ns, x_ns)}});
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].pairs == 1);
  CHECK(rows[0].place == "mixed");
  CHECK(rows[0].ratio.median == doctest::Approx(0.5));
  const auto unknown = perf::compare({"x", {launched("tutti", 1, 0, 0), launched("a", 2, 0, 0)}});
  CHECK(unknown[0].place == "mixed");
}

TEST_CASE("our launches with shared memory have their own rows and pairs") {
  const perf::benchmark of{
      "latency.2.shm", {in_c("tutti", 6, 1 << 20), in_c("tutti-shared", 3, 1 << 20), in_c("a", 10, 1 << 20)}};
  const auto rows = perf::compare(of);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].own.peer == "tutti");
  CHECK(rows[0].ratio.median == doctest::Approx(0.6));
  CHECK(rows[1].own.peer == "tutti-shared");
  CHECK(rows[1].ratio.median == doctest::Approx(0.3));
  REQUIRE(rows[1].verdicts.size() == 1);
  CHECK(rows[1].verdicts[0].aim.ratio == 0.5);
}

TEST_CASE("rivals without a launch in the main placement are launched again") {
  const auto in_x = [](const char* peer) { return launched(peer, 1, x_ns, x_ns, 8); };
  perf::benchmark of{
      "latency.2.shm",
      {in_c("tutti", 1), in_c("a", 1), in_c("tutti", 1), in_x("b"), in_c("tutti", 1), in_c("limit", 1)}};
  CHECK(perf::unpaired(of) == std::vector<std::string>{"b"});
  of.launches.push_back(in_c("b", 1));  // after a launch of ours in the same placement
  CHECK(perf::unpaired(of).empty());
  CHECK(perf::unpaired({"nothing", {}}).empty());
}

TEST_CASE("means are compared if ranks outnumber cores") {
  perf::benchmark of{"latency.2.shm", {in_c("tutti", 1), in_c("a", 2)}};
  CHECK_FALSE(perf::uses_means(of));
  CHECK(perf::compare(of)[0].own.us.median == doctest::Approx(1));
  for (perf::launch& one : of.launches) one.what.cores = 1;
  CHECK(perf::uses_means(of));
  CHECK(perf::compare(of)[0].own.us.median == doctest::Approx(10));
}

TEST_CASE("without a rival there are only times; any fault marks the size") {
  perf::benchmark of{"latency.2.shm", {in_c("tutti", 1), in_c("tutti", 2)}};
  CHECK(perf::compare(of)[0].rival.peer.empty());
  CHECK(perf::compare(of)[0].good);
  of.launches[1].what.rows[0].faults = 1;
  CHECK_FALSE(perf::compare(of)[0].good);
  CHECK(perf::compare({"nothing", {}}).empty());
}

TEST_CASE("overlaps are medians of launches, for each mode of computing") {
  const auto launch = [](const char* peer, double overlap, double both_cpu) {
    perf::report r;
    r.command = "overlap";
    r.ranks = r.cores = 2;
    for (const char* mode : {"device", "all"}) {
      perf::overlap_row row;
      row.bytes = 16 << 20;
      row.mode = mode;
      row.overlap = overlap;
      row.both_us = row.bound_us = 10;
      row.comm_cpu_us = row.compute_cpu_us = 5;
      row.both_cpu_us = both_cpu;
      r.overlaps.push_back(row);
    }
    return perf::launch{peer, r};
  };
  const auto values = perf::overlaps_of(
      {"overlap.2.shm", {launch("tutti", 0.98, 9), launch("a", 0.1, 9), launch("tutti", 1, 11)}});
  REQUIRE(values.size() == 4);
  CHECK(values[0].peer == "tutti");
  CHECK(values[0].median.overlap == doctest::Approx(0.99));
  REQUIRE(values[0].verdicts.size() == 1);
  CHECK(values[0].verdicts[0].met);
  CHECK(values[1].peer == "a");
  CHECK(values[1].verdicts.empty());
  REQUIRE(values[2].verdicts.size() == 2);  // wall and CPU, at the limit: met
  CHECK(values[2].verdicts[0].met);
  CHECK(values[2].verdicts[1].met);
}
