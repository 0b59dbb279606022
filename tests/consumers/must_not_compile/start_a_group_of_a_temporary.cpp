// SPDX-License-Identifier: Apache-2.0
// The list would be destroyed before the group is made.
// EXPECT: (use of|call to).*deleted.*start.*operation_on_temporary
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  auto making = tutti::start(world.group(std::vector<int>(1)));
  const tutti::communicator made = co_await making;
}
