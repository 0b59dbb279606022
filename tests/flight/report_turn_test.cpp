// SPDX-License-Identifier: Apache-2.0
// Of ranks that time out together, one reports.
#include "flight/recordings.hpp"

#include <doctest/doctest.h>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

using tutti::flight::report_turn;

namespace {

constexpr std::int64_t quiet_ns = 60'000'000'000;

}  // namespace

TEST_CASE("report turn: of threads that ask at once, one gets the turn") {
  constexpr int rounds = 20'000;
  static std::array<report_turn, rounds> turns;
  std::atomic<int> ready{0}, taken{0};
  const auto ask = [&] {
    for (int round = 0; round < rounds; ++round) {
      ++ready;
      while (ready < 2 * (round + 1)) std::this_thread::yield();
      if (turns[static_cast<std::size_t>(round)].take(quiet_ns)) ++taken;
    }
  };
  std::thread other(ask);
  ask();
  other.join();
  CHECK(taken == rounds);
}

TEST_CASE("report turn: the turn lasts until its owner has read") {
  report_turn turn;
  CHECK_FALSE(turn.being_read());
  CHECK(turn.take(quiet_ns));
  CHECK(turn.being_read());
  CHECK_FALSE(turn.take(quiet_ns));
  turn.has_read();
  CHECK_FALSE(turn.being_read());
  CHECK(turn.take(-1));  // enough time without a report
}
