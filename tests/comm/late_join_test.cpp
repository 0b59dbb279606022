// SPDX-License-Identifier: Apache-2.0
// A rank that joins after the end of rank 0 and its store gets an error at once, and so do two jobs that join
// when a rank dies.
#include "launch/launched.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <string>
#include <vector>

using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;

namespace {

// Far below the minute for which ranks wait for a rank 0 that may still start.
constexpr double at_once_s = 15;

ending run(int ranks, const std::string& name, const std::string& on_failure) {
  const temporary_directory folder;
  return launched({"-n", std::to_string(ranks), "--tag-output", "never", "--on-failure", on_failure,
                   TUTTI_LATE_JOIN_PATH, name, folder.path()},
                  {"TUTTI_TIMEOUT=60"})
      .finish();
}

// The line that the rank printed when it ended in this way.
std::string line_of(const ending& end, int rank, const std::string& how) {
  const std::string begin = "rank " + std::to_string(rank) + " " + how + " after ";
  const std::size_t at = end.output.find(begin);
  REQUIRE(at != std::string::npos);
  const double after = std::strtod(end.output.c_str() + at + begin.size(), nullptr);
  MESSAGE("rank " << rank << " was told after " << after << " s");
  CHECK(after < at_once_s);
  return end.output.substr(at, end.output.find('\n', at) - at);
}

void check_told(const ending& end, int rank) {
  const std::string line = line_of(end, rank, "join_failed");
  CAPTURE(line);
  CHECK(line.find("rank 0") != std::string::npos);
  CHECK(line.find("look at its output") != std::string::npos);
}

}  // namespace

TEST_CASE("late join: rank 0 has died before it served the store") {
  const ending end = run(3, "dies_before_it_serves", "continue");
  CAPTURE(end.output);
  CAPTURE(end.error);
  check_told(end, 1);
  check_told(end, 2);
  CHECK(count_of(end.output, "start the job anew") == 2);
}

TEST_CASE("late join: rank 0 has died while it served the store") {
  const ending end = run(3, "dies_while_it_serves", "continue");
  CAPTURE(end.output);
  CAPTURE(end.error);
  check_told(end, 1);
  check_told(end, 2);
  CHECK(count_of(end.output, "start the job anew") >= 1);
}

TEST_CASE("late join: rank 0 has finished, and a group goes on while another rank wants to join again") {
  const ending end = run(4, "finishes", "restart");
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  check_told(end, 1);
  CHECK(count_of(end.output, "communicator::shrink") == 1);
  CHECK(count_of(end.output, " sums: right\n") == 2);
}

TEST_CASE("late join: a rank dies while its job and another one join: all others of both are told") {
  for (const std::string when : {"jobs_join_early", "jobs_join"}) {
    CAPTURE(when);
    const ending end = run(5, when, "continue");
    CAPTURE(end.output);
    CAPTURE(end.error);
    for (const int rank : {0, 1, 3, 4}) {
      const std::string line = line_of(end, rank, "was told");
      CAPTURE(line);
      CHECK(line.find("rank 2") != std::string::npos);
    }
  }
}
