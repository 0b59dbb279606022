// SPDX-License-Identifier: Apache-2.0
// Movement of blocks in host memory, by every algorithm, in every world.
#include "coll/conformance/movement.hpp"

#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("movement: every element type and algorithm, even and uneven, all of a size in flight at once") {
  run_in_all([](communicator world, const setting* where) {
    return movement::every_type(std::move(world), where, &in_host_memory);
  });
}
TEST_CASE("movement: every size around a threshold, by every algorithm, from every root") {
  run_in_all([](communicator world, const setting* where) {
    return movement::every_size_and_root(std::move(world), where, &in_host_memory);
  });
}
TEST_CASE("movement: uneven blocks of every shape and size") {
  run_in_all([](communicator world, const setting* where) {
    return movement::every_shape(std::move(world), where, &in_host_memory);
  });
}
TEST_CASE("barrier: no rank leaves before all have entered, by every algorithm") {
  for (const setting& where : settings()) {
    const std::string name = where.name();
    CAPTURE(name);
    std::atomic<int> arrived = 0;
    CHECK_NOTHROW(run_in(where, [&arrived](communicator world, const setting* here) {
      return movement::nobody_leaves_early(std::move(world), here, &in_host_memory, &arrived);
    }));
  }
}
