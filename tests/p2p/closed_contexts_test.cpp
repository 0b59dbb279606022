// SPDX-License-Identifier: Apache-2.0
#include "p2p/contexts.hpp"

#include <doctest/doctest.h>
#include <cstdint>

using tutti::p2p::closed_contexts;

namespace {

constexpr std::uint32_t ranks = 3;

void close(closed_contexts& closed, std::uint32_t counter, std::uint32_t giver) {
  const std::uint32_t id = counter * ranks + giver;
  closed.add(2 * id);
  closed.add(2 * id + 1);
}
bool is_closed(const closed_contexts& closed, std::uint32_t counter, std::uint32_t giver) {
  const std::uint32_t id = counter * ranks + giver;
  return closed.contains(2 * id) && closed.contains(2 * id + 1);
}

}  // namespace

TEST_CASE("closed contexts: all are remembered, and contexts closed in order form one range") {
  closed_contexts closed(ranks);
  CHECK(!closed.contains(0));
  for (std::uint32_t i = 1; i <= 100'000; ++i) close(closed, i, i % 2);
  CHECK(closed.ranges() > 1);
  for (std::uint32_t i = 1; i <= 100'000; ++i) close(closed, i, 1 - i % 2);
  CHECK(closed.ranges() == 2);  // one for each rank that made them
  for (std::uint32_t i = 1; i <= 100'000; ++i) {
    REQUIRE(is_closed(closed, i, 0));
    REQUIRE(is_closed(closed, i, 1));
    REQUIRE(!is_closed(closed, i, 2));
  }
  CHECK(!is_closed(closed, 0, 0));
  CHECK(!is_closed(closed, 100'001, 0));
}

TEST_CASE("closed contexts: a gap closes with its last context") {
  closed_contexts closed(ranks);
  close(closed, 3, 2);
  close(closed, 1, 2);
  CHECK(closed.ranges() == 2);
  CHECK(!is_closed(closed, 2, 2));
  close(closed, 2, 2);
  close(closed, 2, 2);
  CHECK(closed.ranges() == 1);
}

TEST_CASE("closed contexts: beyond a number of gaps the oldest count as closed") {
  closed_contexts closed(ranks);
  for (std::uint32_t i = 1; i <= 20'000; ++i) close(closed, 2 * i, 1);
  CHECK(closed.ranges() <= 4096);
  CHECK(is_closed(closed, 2, 1));
  CHECK(is_closed(closed, 40'000, 1));
  CHECK(!is_closed(closed, 39'999, 1));
}
