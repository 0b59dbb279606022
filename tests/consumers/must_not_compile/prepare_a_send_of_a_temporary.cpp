// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the first message.
// EXPECT: (use of|call to).*deleted.*prepare.*operation_on_temporary
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  auto sending = co_await tutti::prepare(world.send(std::vector<float>(4), 1));
  co_await sending();
}
