// SPDX-License-Identifier: Apache-2.0
// Floating-point numbers have no bitwise operations.
// EXPECT: this reduction does not fit this element type
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<tutti::bfloat16> weights(4);
  co_await world.all_reduce(weights, tutti::bxor);
}
