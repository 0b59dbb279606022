// SPDX-License-Identifier: Apache-2.0
// Set-up: a program that starts its own processes. Each of them runs `run`, with the communicator of all.
//   tutorial_set_up
//   tutorial_set_up 4
//   tutti-run -n 4 tutorial_set_up 4
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <tutti/tutti.hpp>

tutti::task<> run(tutti::communicator world) {
  std::printf("Rank %d of %d is process %d\n", world.rank(), world.size(), static_cast<int>(::getpid()));
  co_return;
}

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  return tutti::spawn(size, run);
}
