// SPDX-License-Identifier: Apache-2.0
// Awaiting a request where it is made: send and recv do that.
// EXPECT: operator co_await|no member named 'await_ready' in 'tutti::basic_request<tutti::status>'
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  const float x = 1;
  co_await world.isend(x, 1);
}
