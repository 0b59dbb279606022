// SPDX-License-Identifier: Apache-2.0
// A queue of work without a master: each rank takes the next task by one fetch_add on a signal of rank 0, which does
// its own share and answers nobody. Results go straight to their place in rank 0's memory.
//   tutti-run -n 4 only_work_queue
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdio>
#include <span>

constexpr std::uint64_t tasks = 1000;
constexpr int next_task = 0;

// Steps of the Collatz sequence to 1: tasks of unequal length.
int steps_from(std::uint64_t n) {
  int steps = 0;
  for (; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

tutti::task<> program(tutti::communicator world) {
  tutti::shared_vector<int> results(world.rank() == 0 ? tasks : 0);
  tutti::window w = co_await world.window(std::span(results));  // sizes may differ
  for (;;) {
    const std::uint64_t task = co_await w.fetch_add(0, next_task, 1);
    if (task >= tasks) break;
    const int result = steps_from(task + 1);
    co_await w.put(result, 0, task);
  }
  co_await w.flush(0);
  co_await world.barrier();
  if (world.rank() != 0) co_return;
  const auto longest = std::ranges::max_element(results);
  std::printf("%zu results; the longest sequence below 1001 starts at %td and has %d steps\n", results.size(),
              longest - results.begin() + 1, *longest);
}

int main() { return tutti::run(program); }
