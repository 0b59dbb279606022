// SPDX-License-Identifier: Apache-2.0
// A rank of a world that grows and shrinks, for comm/elastic_test: `elastic_drill DONE [KILL]`. Ranks compute
// together until the file DONE exists, and admit newcomers. Rank 0 prints each world; violations begin with
// WRONG. A process of rank 1 that finds the file KILL removes it and kills itself.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

tutti::task<> check_order(tutti::communicator world, int before) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(before, all);
  int last = -1;
  bool newcomers = false;
  for (const int rank : all) {
    if (rank >= 0 && (newcomers || rank <= last)) std::printf("WRONG: the order of ranks\n");
    if (rank < 0) newcomers = true;
    if (rank >= 0) last = rank;
  }
}

// Completes with false if newcomers wait.
tutti::task<bool> work(tutti::communicator world, const char* done, const char* killing) {
  for (;;) {
    std::vector<int> said = {tutti::newcomers(world), 0, 1};
    if (world.rank() == 0 && ::access(done, F_OK) == 0) said[1] = 1;
    if (killing != nullptr && world.rank() == 1 && ::unlink(killing) == 0) ::kill(::getpid(), SIGKILL);
    co_await world.all_reduce(said, tutti::sum);
    if (said[2] != world.size()) std::printf("WRONG: a sum\n");
    if (said[1] > 0) co_return true;
    if (said[0] > 0) co_return false;
  }
}

tutti::task<> main_of_rank(tutti::communicator world, const char* done, const char* killing) {
  int before = -1;
  for (bool again = false;;) {
    std::optional<tutti::error> trouble;
    try {
      if (again) world = co_await world.rejoin();
      again = true;
      co_await check_order(world, before);
      before = world.rank();
      if (world.rank() == 0) std::printf("world of %d\n", world.size());
      std::fflush(stdout);
      const bool finished = co_await work(world, done, killing);
      if (finished) break;
      continue;
    } catch (const tutti::error& e) {
      trouble = e;
    }
    if (trouble->code() != tutti::errc::peer_failed && trouble->code() != tutti::errc::communicator_failed)
      throw *trouble;
    before = world.rank();
  }
  std::printf("finished\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* const killing = argc > 2 ? argv[2] : nullptr;
  return tutti::run([=](tutti::communicator world) { return main_of_rank(world, argv[1], killing); });
}
