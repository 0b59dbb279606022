// SPDX-License-Identifier: Apache-2.0
#include "common/comparison.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace {

constexpr double c_ns = 50, x_ns = 240;

perf::report launch(const char* program, double median_us, double before_ns, double after_ns) {
  perf::report r;
  r.program = program;
  r.command = "latency";
  r.transport = "shm";
  r.ranks = r.cores = 2;
  perf::row row;
  row.bytes = 8;
  row.median_us = median_us;
  row.mean_us = 2 * median_us;
  row.line_before_ns = before_ns;
  row.line_after_ns = after_ns;
  r.rows = {row};
  return r;
}

}  // namespace

TEST_CASE("launches are compared with their neighbours in time") {
  const std::vector<perf::report> own{launch("a", 1, c_ns, c_ns), launch("a", 10, c_ns, c_ns),
                                      launch("a", 3, c_ns, c_ns)};
  const std::vector<perf::report> rival{launch("b", 2, c_ns, c_ns), launch("b", 10, c_ns, c_ns),
                                        launch("b", 2, c_ns, c_ns)};
  const auto rows = perf::compare(own, rival);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].ratio.median == doctest::Approx(1.0));
  CHECK(rows[0].ratio.min == doctest::Approx(0.5));
  CHECK(rows[0].ratio.max == doctest::Approx(1.5));
  CHECK(rows[0].own_us.median == doctest::Approx(3));
  CHECK(rows[0].rival_us.median == doctest::Approx(2));
  CHECK(rows[0].pairs == 3);
  CHECK(rows[0].place == "C");
}

TEST_CASE("each placement has its row; pairs of different or changing ones are left out") {
  const std::vector<perf::report> own{launch("a", 1, c_ns, c_ns), launch("a", 1, c_ns, c_ns),
                                      launch("a", 1, x_ns, x_ns), launch("a", 1, c_ns, x_ns)};
  const std::vector<perf::report> rival{launch("b", 2, c_ns, c_ns), launch("b", 8, x_ns, x_ns),
                                        launch("b", 4, x_ns, x_ns), launch("b", 9, c_ns, x_ns)};
  const auto rows = perf::compare(own, rival);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].place == "C");
  CHECK(rows[0].pairs == 1);
  CHECK(rows[0].left_out == 2);
  CHECK(rows[0].ratio.median == doctest::Approx(0.5));
  CHECK(rows[0].rival_us.max == doctest::Approx(2));
  CHECK(rows[1].place == "X");
  CHECK(rows[1].left_out == 0);
  CHECK(rows[1].ratio.median == doctest::Approx(0.25));
}

TEST_CASE("when no pair is clean all are used, and it is said") {
  const auto rows = perf::compare({launch("a", 1, c_ns, c_ns)}, {launch("b", 2, x_ns, x_ns)});
  CHECK(rows[0].pairs == 1);
  CHECK(rows[0].place == "mixed");
  CHECK(rows[0].ratio.median == doctest::Approx(0.5));
  CHECK(perf::compare({launch("a", 1, 0, 0)}, {launch("b", 2, 0, 0)})[0].place == "mixed");  // unknown ones
}

TEST_CASE("times have three digits and no exponent") {
  const std::string table = perf::markdown_of(
      {launch("a", 0.1312, c_ns, c_ns), launch("a", 9.876, c_ns, c_ns), launch("a", 148'407, c_ns, c_ns)},
      {});
  CHECK(table.find("| 9.88 (0.131..148407) |") != std::string::npos);
}

TEST_CASE("the table shows a wrong launch, and stands without a rival") {
  std::vector<perf::report> own{launch("a", 1, c_ns, c_ns)};
  CHECK(perf::markdown_of(own, {}).find("| 8 B | 1.00 (1.00..1.00) |") != std::string::npos);
  own[0].rows[0].faults = 1;
  const std::string table = perf::markdown_of(own, {launch("b", 2, c_ns, c_ns)});
  CHECK(table.find("WRONG") != std::string::npos);
  CHECK(table.find("**0.50**") != std::string::npos);
  CHECK(perf::markdown_of({}, {}).empty());
}
