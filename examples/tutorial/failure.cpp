// SPDX-License-Identifier: Apache-2.0
// Training that goes on when a rank dies, and keeps a record of itself.
//   tutti-run -n 4 --on-failure continue tutorial_failure            all ranks to the end
//   tutti-run -n 4 --on-failure continue tutorial_failure 2 30       rank 2 dies at step 30
#include <tutti/track.hpp>
#include <tutti/tutti.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

struct model {
  double weight = 0;
  int step = 0;
};

// After a failure some ranks may be a step ahead: all take the model of the most advanced rank.
tutti::task<> agree(tutti::communicator world, model* mine) {
  int furthest = mine->step;
  co_await world.all_reduce(furthest, tutti::max);
  int source = mine->step == furthest ? world.rank() : world.size();
  co_await world.all_reduce(source, tutti::min);
  co_await world.broadcast(*mine, source);
}

tutti::task<> train(tutti::communicator world, int victim, int fatal_step) {
  using namespace std::chrono_literals;
  const int name = world.rank();  // ranks are numbered anew after shrink()
  const tutti::track::log log = co_await tutti::track::open(world);
  model mine;
  while (mine.step < 100) {
    if (name == victim && mine.step == fatal_step) ::kill(::getpid(), SIGKILL);
    double gradient = mine.weight - (name + 1);
    log.scalar("loss", mine.step, gradient * gradient / 2);
    auto averaging = tutti::with_timeout(world.all_reduce(gradient, tutti::avg), 30s);
    const auto averaged = co_await tutti::as_result(std::move(averaging));
    if (averaged.error) {
      std::printf("%s\n", averaged.message.c_str());
      world = co_await world.shrink();
      co_await agree(world, &mine);
      continue;
    }
    mine.weight -= 0.1 * gradient;
    ++mine.step;
  }
  const tutti::track::totals totals = co_await log.finish();
  if (world.rank() == 0)
    std::printf("%d ranks, weight %.3f, run in %s, all of it: %s\n", world.size(), mine.weight,
                log.directory().c_str(), totals.complete ? "yes" : "no");
}

int main(int argc, char** argv) {
  const int victim = argc > 2 ? std::atoi(argv[1]) : -1, step = argc > 2 ? std::atoi(argv[2]) : 0;
  return tutti::run([=](tutti::communicator world) { return train(world, victim, step); });
}
