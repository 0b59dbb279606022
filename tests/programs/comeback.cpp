// SPDX-License-Identifier: Apache-2.0
// Ranks that die and are restarted, for comm/rejoin_test: `comeback DEATH...`. A death is RANK:START:WHEN:
// that rank, at that number of restarts, in that step; or WHEN is `init` (while it joins) or `rejoin` (while
// it rejoins). Every rank counts the steps that all have made together, and prints its observations.
// Violations begin with WRONG.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr int steps = 40;
using clock_type = std::chrono::steady_clock;

struct plan {
  int die_at = -1;  // a step
  bool in_init = false;
  bool in_rejoin = false;
};

long ms_since(clock_type::time_point then) {
  return static_cast<long>(
      std::chrono::duration_cast<std::chrono::milliseconds>(clock_type::now() - then).count());
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void die_after(std::chrono::microseconds delay) {
  std::thread([delay] {
    std::this_thread::sleep_for(delay);
    die();
  }).detach();
}

tutti::task<> work(tutti::communicator world, plan p, int starts, clock_type::time_point up) {
  const int me = world.rank(), ranks = world.size();
  std::printf("rank %d start %d joined %ld ms\n", me, starts, ms_since(up));
  std::fflush(stdout);
  int step = 0;
  bool broken = false;
  for (;;) {
    std::optional<tutti::error> trouble;
    try {
      if (broken) {
        if (p.in_rejoin) die_after(std::chrono::microseconds(500));
        const auto before = clock_type::now();
        const tutti::communicator old = world;
        world = co_await world.rejoin();
        std::printf("rank %d rejoined %ld ms\n", me, ms_since(before));
        std::fflush(stdout);
        if (world.rank() != me || world.size() != ranks) std::printf("WRONG rank %d: another place\n", me);
        // A send on the communicator of the old epoch must fail.
        const int stale = -1;
        const auto late = co_await tutti::as_result(old.send(stale, (me + 1) % ranks, 9));
        if (!late.error) std::printf("WRONG rank %d: the old epoch still sends\n", me);
      }
      broken = false;
      co_await world.all_reduce(step, tutti::max);
      while (step < steps) {
        if (step == p.die_at) die();
        std::vector<long> data(1 + static_cast<std::size_t>(step) * 500, me + step);
        co_await world.all_reduce(data, tutti::sum);
        for (const long x : data)
          if (x != ranks * (ranks - 1) / 2 + long{step} * ranks) {
            std::printf("WRONG rank %d step %d: a sum\n", me, step);
            break;
          }
        int from_left = -1;
        tutti::request sending = world.isend(me, (me + 1) % ranks, 9);
        co_await world.recv(from_left, tutti::any_source, 9);
        if (from_left != (me + ranks - 1) % ranks)
          std::printf("WRONG rank %d step %d: a message\n", me, step);
        co_await sending;
        ++step;
      }
      break;
    } catch (const tutti::error& e) {
      trouble = e;
    }
    if (trouble->code() != tutti::errc::peer_failed && trouble->code() != tutti::errc::communicator_failed)
      throw *trouble;
    broken = true;
  }
  std::printf("rank %d start %d done\n", me, starts);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto up = clock_type::now();
  const char* const count = std::getenv("TUTTI_RESTART_COUNT");
  const char* const my_rank = std::getenv("RANK");
  const int starts = count != nullptr ? std::atoi(count) : 0;
  plan p;
  for (int i = 1; i < argc; ++i) {
    int rank = 0, start = 0, at = 0;
    char when[16] = "";
    if (std::sscanf(argv[i], "%d:%d:%15s", &rank, &start, when) != 3) return 2;
    if (my_rank == nullptr || rank != std::atoi(my_rank) || start != starts) continue;
    if (std::strcmp(when, "init") == 0) p.in_init = true;
    if (std::strcmp(when, "rejoin") == 0) p.in_rejoin = true;
    if (std::sscanf(when, "%d", &at) == 1) p.die_at = at;
  }
  if (p.in_init) die_after(std::chrono::microseconds(3000));
  return tutti::run([=](tutti::communicator world) { return work(std::move(world), p, starts, up); });
}
