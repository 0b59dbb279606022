// SPDX-License-Identifier: Apache-2.0
// A user's program on tutti::sim.
#include <tutti/sim.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

tutti::task<> meet(tutti::communicator world) { co_await world.barrier(); }

int main() {
  const tutti::sim::report report = tutti::sim::run(tutti::sim::options(), meet);
  std::printf("sim: %s\n", report.all_returned() ? "yes" : "no");
}
