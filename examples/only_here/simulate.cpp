// SPDX-License-Identifier: Apache-2.0
// A deadlock that needs a certain timing: the simulator finds a seed for it, and the seed reproduces it.
//   only_simulate
#include <tutti/sim.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>

// Rank 0 mistakes the first message for that of rank 1. It usually is.
tutti::task<> program(tutti::communicator world) {
  int x = world.rank();
  if (world.rank() == 0) {
    co_await world.recv(x, tutti::any_source);
    co_await world.recv(x, 2);  // the planted fault: the first message may have been rank 2's
  } else {
    if (world.rank() == 2) co_await tutti::sleep_for(std::chrono::microseconds(150));
    co_await world.send(x, 0);
  }
  co_await world.barrier();
}

tutti::sim::report simulate(std::uint64_t seed) {
  tutti::sim::options o;
  o.ranks = 3;
  o.seed = seed;
  o.noise = tutti::sim::random_noise(seed);
  o.limit = std::chrono::seconds(1);  // before the timeout of any operation: a deadlock stays one
  return tutti::sim::run(o, program);
}

int main() {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const tutti::sim::report found = simulate(seed);
    if (found.all_returned()) continue;
    std::printf("%s", found.text().c_str());
    if (found.ranks[0].how != tutti::sim::ending::stuck) return 1;  // not the planted failure
    const tutti::sim::report again = simulate(seed);
    std::printf("the same again: %s\n", again.hash == found.hash ? "yes, to the last event" : "NO");
    return found.hash == again.hash ? 0 : 1;
  }
  std::puts("no deadlock in 100 seeds");
  return 1;
}
