// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the message is sent.
// EXPECT: isend needs a buffer that outlives the request
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  tutti::request sending = world.isend(std::vector<float>(4), 1);
  co_await sending;
}
