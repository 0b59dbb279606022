// SPDX-License-Identifier: Apache-2.0
// A rank dies; the others go on without it, then with its successor, a new process.
//   tutti-run -n 4 --on-failure restart --max-restarts 1 only_shrink_and_rejoin
#include <tutti/tutti.hpp>

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

tutti::task<> program(tutti::communicator world) {
  const char* const restarts = std::getenv("TUTTI_RESTART_COUNT");
  const bool successor = restarts != nullptr && std::atoi(restarts) > 0;
  if (!successor) {
    auto ended = co_await tutti::as_result(world.barrier());
    if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
    int ranks = 1;
    if (!ended.error) ended = co_await tutti::as_result(world.all_reduce(ranks, tutti::sum));
    std::printf("%s\n", ended.message.c_str());  // on the rank that detects it first
    tutti::communicator left = co_await world.shrink();
    ranks = 1;
    co_await left.all_reduce(ranks, tutti::sum);
    if (left.rank() == 0) std::printf("without rank 1: %d ranks\n", ranks);
    world = co_await world.rejoin();
  }
  int ranks = 1;
  co_await world.all_reduce(ranks, tutti::sum);
  if (world.rank() == 0) std::printf("with its successor: %d ranks\n", ranks);
}

int main() { return tutti::run(program); }
