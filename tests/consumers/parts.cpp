// SPDX-License-Identifier: Apache-2.0
// A user's program on the libraries beside tutti's own: the simulator and devices.
#include <cstdio>
#include <tutti/emulated.hpp>
#include <tutti/sim.hpp>
#include <tutti/tutti.hpp>

tutti::task<> meet(tutti::communicator world) { co_await world.barrier(); }

tutti::task<> open_device(tutti::communicator world) {
  const tutti::gpu::device device = tutti::emulated::open(world);
  std::printf("device: %s\n", device ? "yes" : "no");
  co_await world.barrier();
}

int main() {
  std::printf("simulated: %s\n", tutti::sim::run(tutti::sim::options(), meet).all_returned() ? "yes" : "no");
  return tutti::run(open_device);
}
