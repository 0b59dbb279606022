// SPDX-License-Identifier: Apache-2.0
// Reductions in host memory, by every algorithm, in every world.
#include "coll/conformance/reductions.hpp"

#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("reductions: every element type, reduction and algorithm, all of a size in flight at once") {
  run_in_all([](communicator world, const setting* where) {
    return reductions::every_type(std::move(world), where, &in_host_memory);
  });
}
TEST_CASE("reductions: every size around a threshold, by every algorithm") {
  run_in_all([](communicator world, const setting* where) {
    return reductions::every_size(std::move(world), where, &in_host_memory);
  });
}
