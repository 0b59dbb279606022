// SPDX-License-Identifier: Apache-2.0
// Blocking point to point: rank 0 sends one number to rank 1. Both then have it.
//   tutti-run -n 2 tutorial_blocking
#include <cstdio>
#include <tutti/tutti.hpp>

tutti::task<> run(tutti::communicator world) {
  float tensor = 0;
  if (world.rank() == 0) {
    tensor += 1;
    co_await world.send(tensor, 1);
  } else if (world.rank() == 1) {
    co_await world.recv(tensor, 0);
  }
  if (world.rank() < 2) std::printf("Rank %d has data %.1f\n", world.rank(), static_cast<double>(tensor));
}

int main() { return tutti::run(run); }
