// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the message is sent.
// EXPECT: (use of|call to).*deleted.*start.*operation_on_temporary
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  tutti::request sending = tutti::start(world.send(std::vector<float>(4), 1));
  co_await sending;
}
