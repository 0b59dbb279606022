// SPDX-License-Identifier: Apache-2.0
// Non-blocking point to point: isend and irecv return at once, the data are there after the await.
//   tutti-run -n 2 tutorial_non_blocking
#include <cstdio>
#include <tutti/tutti.hpp>

tutti::task<> run(tutti::communicator world) {
  float tensor = 0;
  if (world.rank() == 0) {
    tensor += 1;
    tutti::request sending = world.isend(tensor, 1);
    std::puts("Rank 0 started sending");
    co_await sending;  // until here the tensor must not change
  } else if (world.rank() == 1) {
    tutti::request receiving = world.irecv(tensor, 0);
    std::puts("Rank 1 started receiving");
    co_await receiving;  // until here the tensor must not be read
  }
  if (world.rank() < 2) std::printf("Rank %d has data %.1f\n", world.rank(), static_cast<double>(tensor));
}

int main() { return tutti::run(run); }
