// SPDX-License-Identifier: Apache-2.0
// Strings own memory elsewhere, so their bytes are meaningless on another rank.
// EXPECT: satisf.*Buffer
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<std::string> names(4);
  co_await world.send(names, 1);
}
