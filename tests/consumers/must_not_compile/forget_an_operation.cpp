// SPDX-License-Identifier: Apache-2.0
// A lazy operation that is never awaited does nothing: a warning, and an error with -Werror.
// EXPECT: does nothing until it is awaited
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  world.barrier();
  co_return;
}
