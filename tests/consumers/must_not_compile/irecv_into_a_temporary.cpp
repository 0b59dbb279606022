// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the message arrives.
// EXPECT: irecv needs a writable buffer that outlives the request
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  tutti::request receiving = world.irecv(std::vector<float>(4), 0);
  co_await receiving;
}
