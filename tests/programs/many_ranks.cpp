// SPDX-License-Identifier: Apache-2.0
// The cost of many ranks on one machine: `/usr/bin/time -f "%e s" tutti-run -n 512 many_ranks`. Rank 0 prints
// the times of a first and a second all_reduce, and the memory of all ranks (Pss: shared pages count once).
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

tutti::task<> many(tutti::communicator world) {
  double took[2] = {};
  for (double& t : took) {
    const auto begun = std::chrono::steady_clock::now();
    double sum = 1;
    co_await world.all_reduce(sum, tutti::sum);
    t = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
    if (sum != world.size()) std::printf("WRONG: the sum of ones is %g\n", sum);
  }
  double memory = pss_mib();
  co_await world.all_reduce(memory, tutti::sum);
  if (world.rank() == 0)
    std::printf("%d ranks: all_reduce in %.1f ms, then in %.1f ms; %.0f MiB in all\n", world.size(), took[0],
                took[1], memory);
}

}  // namespace

int main() { return tutti::run(many); }
