// SPDX-License-Identifier: Apache-2.0
// A pointer is invalid on another rank, and has no count. A span has one.
// EXPECT: satisf.*Buffer
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  float values[4] = {};
  float* first = values;
  co_await world.send(first, 1);
}
