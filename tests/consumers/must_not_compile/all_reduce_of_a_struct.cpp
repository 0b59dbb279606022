// SPDX-License-Identifier: Apache-2.0
// A struct has no sum.
// EXPECT: this reduction does not fit this element type
#include <tutti/tutti.hpp>
#include <vector>

struct point {
  float x, y;
};

tutti::task<> program(tutti::communicator world) {
  std::vector<point> points(4);
  co_await world.all_reduce(points, tutti::sum);
}
