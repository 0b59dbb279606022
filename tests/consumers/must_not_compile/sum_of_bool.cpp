// SPDX-License-Identifier: Apache-2.0
// Flags are combined with bor, or counted as integers.
// EXPECT: this reduction does not fit this element type
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  bool found = false;
  co_await world.all_reduce(found, tutti::sum);
}
