// SPDX-License-Identifier: Apache-2.0
// The cost of many ranks on one machine: `/usr/bin/time -f "%e s" tutti-run -n 512 many_ranks`. Rank 0 prints
// the times of a first and a second all_reduce and shrink, and the memory of all ranks (Pss: shared pages count once).
#include <chrono>
#include <cstdio>
#include <tutti/tutti.hpp>

namespace {

double pss_mib() {
  std::FILE* const f = std::fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  long kib = 0;
  while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr)
    if (std::sscanf(line, "Pss: %ld kB", &kib) == 1) break;
  if (f != nullptr) std::fclose(f);
  return static_cast<double>(kib) / 1024;
}

using clock = std::chrono::steady_clock;

double ms_since(clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(clock::now() - begun).count();
}

tutti::task<> many(tutti::communicator world) {
  const int ranks = world.size();
  double summed[2] = {}, shrunk[2] = {};
  for (double& t : summed) {
    const auto begun = clock::now();
    double sum = 1;
    co_await world.all_reduce(sum, tutti::sum);
    t = ms_since(begun);
    if (sum != ranks) std::printf("WRONG: the sum of ones is %g\n", sum);
  }
  for (double& t : shrunk) {
    co_await world.barrier();
    const auto begun = clock::now();
    world = co_await world.shrink();
    t = ms_since(begun);
    if (world.size() != ranks) std::printf("WRONG: %d ranks are left\n", world.size());
  }
  double memory = pss_mib();
  co_await world.all_reduce(memory, tutti::sum);
  if (world.rank() == 0)
    std::printf(
        "%d ranks: all_reduce in %.1f ms, then in %.1f ms; shrink in %.1f ms, then in %.1f ms; %.0f MiB in "
        "all\n",
        ranks, summed[0], summed[1], shrunk[0], shrunk[1], memory);
}

}  // namespace

int main() { return tutti::run(many); }
