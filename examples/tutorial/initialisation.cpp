// SPDX-License-Identifier: Apache-2.0
// The three ways in which ranks find each other, chosen by one option.
//   tutorial_initialisation 4 env://                        four processes, told by their environment
//   tutorial_initialisation 4 file:///path/to/sharedfile    that meet at a file
//   tutorial_initialisation 4 tcp://127.0.0.1:23456         that meet where rank 0 listens
// With one argument more, this process is that rank, and the others are started elsewhere:
//   tutorial_initialisation 2 tcp://10.1.1.20:23456 0       on the host with that address
//   tutorial_initialisation 2 tcp://10.1.1.20:23456 1       on another; TUTTI_SECRET is the same on both
#include <cstdio>
#include <cstdlib>
#include <tutti/tutti.hpp>

tutti::task<> run(tutti::communicator world) {
  int ranks = 1;
  co_await world.all_reduce(ranks, tutti::sum);
  std::printf("Rank %d of %d has met %d\n", world.rank(), world.size(), ranks - 1);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: tutorial_initialisation SIZE METHOD [RANK]\n", stderr);
    return 2;
  }
  tutti::init_options options;
  options.world_size = std::atoi(argv[1]);
  options.init_method = argv[2];
  if (argc > 3) options.rank = std::atoi(argv[3]);
  return tutti::spawn(options.world_size, options, run);  // run(options, run) where the rank is known
}
