// SPDX-License-Identifier: Apache-2.0
// The received data must exist afterwards.
// EXPECT: recv needs a writable buffer that outlives the operation
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) { co_await world.recv(std::vector<float>(4), 0); }
