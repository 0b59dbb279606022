// SPDX-License-Identifier: Apache-2.0
// A request has one owner and is awaited once.
// EXPECT: (use of|call to).*deleted
#include <tutti/tutti.hpp>
#include <utility>

tutti::task<> program(tutti::communicator world) {
  const float x = 1;
  tutti::request sending = world.isend(x, 1);
  tutti::request copy = sending;
  co_await copy;
}
