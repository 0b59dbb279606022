// SPDX-License-Identifier: Apache-2.0
// As a factor of integers, 0.5 would become 0.
// EXPECT: this reduction does not fit this element type
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<int> counts(4);
  co_await world.all_reduce(counts, tutti::premul_sum(0.5));
}
