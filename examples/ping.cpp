// SPDX-License-Identifier: Apache-2.0
// Point to point, immediate: isend and irecv start at once and are awaited later.
//   tutti-run -n 2 ping
#include <cstdio>
#include <tutti/tutti.hpp>

// clang-format off
tutti::task<> ping(tutti::communicator world) {
  float x = 0;
  if (world.rank() == 0) {
    x = 1;
    tutti::request sending = world.isend(x, 1);         // started here
    std::puts("rank 0 started sending");
    co_await sending;                                   // x may be changed from here on
  } else if (world.rank() == 1) {
    tutti::request receiving = world.irecv(x, 0);
    std::puts("rank 1 started receiving");
    tutti::status st = co_await receiving;              // st.source, st.tag, st.bytes
  }
}
// clang-format on

int main() { return tutti::run(ping); }
