// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed while the message is sent.
// EXPECT: (convert|conversion).*task_on_temporary
#include <chrono>
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<tutti::result<>> program(tutti::communicator world) {
  return tutti::with_timeout(tutti::as_result(world.send(std::vector<float>(4), 1)), std::chrono::seconds(1));
}
