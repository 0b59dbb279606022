// SPDX-License-Identifier: Apache-2.0
// The counts would be destroyed before the blocks are sent.
// EXPECT: (use of|call to).*deleted.*start.*operation_on_temporary
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<float> mine(4), all(8);
  tutti::request gathering = tutti::start(world.all_gather_v(mine, all, std::vector<std::size_t>(2, 4)));
  co_await gathering;
}
