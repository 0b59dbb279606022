// SPDX-License-Identifier: Apache-2.0
#include "common/targets.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <string>

namespace {

int aims_of(perf::command what, const char* transport, int ranks, std::size_t bytes,
            perf::memory where = perf::memory::ordinary) {
  const auto aims = perf::all_targets();
  return static_cast<int>(std::count_if(aims.begin(), aims.end(), [&](const perf::target& aim) {
    return perf::concerns(aim, what, transport, ranks, bytes, where);
  }));
}

}  // namespace

TEST_CASE("targets are found by command, transport, ranks, size and memory") {
  using perf::command;
  CHECK(aims_of(command::latency, "shm", 2, 8) == 1);
  CHECK(aims_of(command::latency, "shm", 2, 16) == 0);
  CHECK(aims_of(command::latency, "tcp", 2, 8) == 2);  // the best rival, and Gloo
  CHECK(aims_of(command::latency, "shm", 4, 64 << 10) == 1);
  CHECK(aims_of(command::all_reduce, "tcp", 4, 12345) == 1);
  CHECK(aims_of(command::all_reduce, "tcp", 4, 16 << 20) == 1);
  CHECK(aims_of(command::barrier, "tcp", 2, 0) == 1);
  CHECK(aims_of(command::overlap, "tcp", 2, 1024) == 0);
  CHECK(aims_of(command::all_reduce, "shm", 3, 4) == 0);
  CHECK(aims_of(command::all_reduce, "shm", 2, 1 << 20, perf::memory::shared) == 1);
  CHECK(aims_of(command::all_reduce, "shm", 2, 1 << 10, perf::memory::shared) == 0);
  CHECK(aims_of(command::startup, "", 16, 0) == 1);
  CHECK(aims_of(command::startup, "tcp", 16, 0) == 1);
}

TEST_CASE("the rivals of a target") {
  perf::target aim;
  CHECK(perf::is_against(aim, "ucx"));
  CHECK_FALSE(perf::is_against(aim, "limit"));
  aim.against = "gloo";
  CHECK(perf::is_against(aim, "gloo-ring"));
  CHECK_FALSE(perf::is_against(aim, "openmpi"));
  aim.against = "mpi";
  CHECK(perf::is_against(aim, "openmpi"));
  CHECK(perf::is_against(aim, "mpich"));
  CHECK_FALSE(perf::is_against(aim, "gloo"));
  aim.against = "limit";
  CHECK(perf::is_against(aim, "limit"));
  CHECK_FALSE(perf::is_against(aim, "openmpi"));
}

TEST_CASE("targets as text") {
  CHECK(perf::text_of(perf::target{.ratio = 0.75}) == "<= 0.75");
  CHECK(perf::text_of(perf::target{.against = "limit", .ratio = 2}) == "<= 2 x the limit");
  CHECK(perf::text_of(perf::target{.ratio = 0.97, .is = perf::target::rule::at_least}) == ">= 0.97");
  CHECK(perf::text_of(perf::target{.ratio = 0.8, .cpu_too = true}) == "<= 0.8, CPU no more");
}
