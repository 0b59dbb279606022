// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed while the message is sent.
// EXPECT: (convert|conversion).*task_on_temporary
#include <chrono>
#include <tutti/tutti.hpp>
#include <vector>

void program(tutti::communicator world, tutti::scope& work) {
  work.spawn(tutti::with_timeout(world.send(std::vector<float>(4), 1), std::chrono::seconds(1)));
}
