// SPDX-License-Identifier: Apache-2.0
// A request that is awaited where it is made: that is what send and recv are for.
// EXPECT: operator co_await|no member named 'await_ready' in 'tutti::request'
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  const float x = 1;
  co_await world.isend(x, 1);
}
