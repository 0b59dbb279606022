// SPDX-License-Identifier: Apache-2.0
// A pointer means nothing on another rank, and tells no count: a span does.
// EXPECT: satisf.*Buffer
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  float values[4] = {};
  float* first = values;
  co_await world.send(first, 1);
}
