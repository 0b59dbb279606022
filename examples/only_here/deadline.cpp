// SPDX-License-Identifier: Apache-2.0
// A deadline names the absent rank: all but the last rank average, with 300 ms to do it in.
//   tutti-run -n 4 only_deadline
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdio>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  using namespace std::chrono_literals;
  tutti::communicator work = co_await world.duplicate();
  std::vector<float> gradient(1000, 1);
  const int absent = world.size() - 1;
  if (world.rank() != absent) {
    try {
      co_await tutti::with_timeout(work.all_reduce(gradient, tutti::avg), 300ms);
    } catch (const tutti::error& late) {
      std::printf("rank %d: %s\n", world.rank(), late.what());
    }
  }
  co_await world.barrier();  // `work` has failed, `world` has not
  if (world.rank() == absent) std::printf("rank %d was absent; the world is whole\n", absent);
}

int main() { return tutti::run(program); }
