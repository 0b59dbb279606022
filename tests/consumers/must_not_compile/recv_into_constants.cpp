// SPDX-License-Identifier: Apache-2.0
// A receive writes its buffer.
// EXPECT: recv needs a writable buffer
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  const std::vector<float> weights(4);
  co_await world.recv(weights, 0);
}
