// SPDX-License-Identifier: Apache-2.0
// A hang explained: all but the last rank call an all_reduce, the last waits for a message that none sends.
//   tutti-run -n 4 only_hang
#include <tutti/explain.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdio>

tutti::task<> program(tutti::communicator world) {
  using namespace std::chrono_literals;
  tutti::communicator work = co_await world.duplicate();
  float x = 1;
  tutti::request hung;
  if (world.rank() + 1 < world.size()) {
    hung = tutti::start(work.all_reduce(x, tutti::sum));
  } else {
    hung = work.irecv(x, 0);
  }
  co_await world.barrier();  // each has begun to wait
  if (world.rank() == 0) std::printf("%s\n", tutti::explain(work).c_str());
  co_await world.barrier();  // a request that is dropped is cancelled
}

int main() { return tutti::run(program); }
