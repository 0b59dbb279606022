// SPDX-License-Identifier: Apache-2.0
// A simple all_reduce in a group: a group of ranks 0 and 1 adds its ones.
//   tutti-run -n 2 tutorial_group_all_reduce
#include <array>
#include <cstdio>
#include <tutti/tutti.hpp>

tutti::task<> run(tutti::communicator world) {
  const std::array<int, 2> ranks = {0, 1};
  tutti::communicator group = co_await world.group(ranks);
  if (!group) co_return;  // called by all ranks, but these are no members
  float tensor = 1;
  co_await group.all_reduce(tensor, tutti::sum);
  std::printf("Rank %d has data %.1f\n", world.rank(), static_cast<double>(tensor));
}

int main() { return tutti::run(run); }
