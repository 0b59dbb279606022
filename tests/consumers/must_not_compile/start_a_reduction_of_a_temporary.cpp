// SPDX-License-Identifier: Apache-2.0
// The input would be destroyed before the reduction, with any algorithm.
// EXPECT: (use of|call to).*deleted.*start.*operation_on_temporary
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<float> sums(4);
  tutti::request reducing =
      tutti::start(world.all_reduce(std::vector<float>(4), sums, tutti::sum).with(tutti::algorithm::ring));
  co_await reducing;
}
