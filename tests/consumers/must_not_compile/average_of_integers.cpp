// SPDX-License-Identifier: Apache-2.0
// The average of integers is not an integer.
// EXPECT: this reduction does not fit this element type
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<int> counts(4);
  co_await world.all_reduce(counts, tutti::avg);
}
