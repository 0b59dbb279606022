// SPDX-License-Identifier: Apache-2.0
// Awaiting a request where it is made: send and recv do that.
// EXPECT: deleted.*co_await
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  const float x = 1;
  co_await world.isend(x, 1);
}
