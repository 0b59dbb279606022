// SPDX-License-Identifier: Apache-2.0
#include "common/startup.hpp"

#include <doctest/doctest.h>
#include <stdexcept>
#include <string>
#include <vector>

TEST_CASE("the command line of a launch: launcher, ranks, program, and file of the report") {
  perf::options o;
  o.ranks = 4;
  const perf::program_names names{"some-perf", "mpirun"};
  using words = std::vector<std::string>;
  CHECK(perf::launch_line(o, names, 123, "/nowhere/some-perf", "/tmp/r") ==
        words{"mpirun", "-n", "4", "/nowhere/some-perf", "startup", "--ranks", "4", "--launched", "123",
              "--result", "/tmp/r"});
  o.launcher = "mpirun.openmpi  --bind-to none";
  CHECK(perf::launch_line(o, names, 1, "/nowhere/p", "r")[1] == "--bind-to");
  const perf::program_names forks{"some-perf", ""};
  o.launcher.clear();
  CHECK(perf::launch_line(o, forks, 1, "/nowhere/p", "r").front() == "/nowhere/p");
}

TEST_CASE("the report of rank 0 survives the round trip; an empty one is an error") {
  const perf::first_barrier read = perf::first_barrier_of("17\nOpen MPI v4\nshm\n");
  CHECK(read.over_ns == 17);
  CHECK(read.library == "Open MPI v4");
  CHECK(read.transport == "shm");
  CHECK_THROWS_AS(perf::first_barrier_of(""), std::runtime_error);
  CHECK_THROWS_AS(perf::first_barrier_of("no\n"), std::runtime_error);
}
