// SPDX-License-Identifier: Apache-2.0
#include "core/host_map.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

using tutti::core::host_map;

namespace {

void check(const std::vector<int>& hosts, std::size_t most_runs) {
  const host_map made(hosts);
  CHECK(made.runs().size() <= most_runs);
  const int ranks = static_cast<int>(hosts.size());
  const host_map back(made.runs(), ranks);
  for (const host_map* map : {&made, &back}) {
    REQUIRE(map->size() == ranks);
    for (int rank = 0; rank < ranks; ++rank)
      REQUIRE(map->host_of(rank) == hosts[static_cast<std::size_t>(rank)]);
  }
  CHECK_THROWS_AS(host_map(made.runs(), ranks + 1), std::invalid_argument);
  CHECK_THROWS_AS(host_map(made.runs(), ranks - 1), std::invalid_argument);
}

}  // namespace

TEST_CASE("host by host, or in turns, any number of ranks takes a few runs") {
  std::vector<int> by_host, in_turns, alone(1000);
  for (int rank = 0; rank < 65'536; ++rank) {
    by_host.push_back(rank / 8);
    in_turns.push_back(rank % 8'192);
  }
  std::iota(alone.begin(), alone.end(), 0);
  check(by_host, 1);
  CHECK(host_map(by_host).hosts() == 8'192);
  check(in_turns, 8);
  check(alone, 1);
  check({0, 0, 0, 1, 1, 2, 2, 2}, 3);
  check({0}, 1);
}

TEST_CASE("any order of hosts is kept") {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<int> hosts(1 + random() % 60);
    for (int& host : hosts) host = static_cast<int>(random() % hosts.size());
    check(hosts, hosts.size());
  }
}

TEST_CASE("runs that no map has are refused") {
  constexpr int huge = 2'000'000'000;
  for (const host_map::run& wrong :
       {host_map::run{0, 1, 0, 4}, host_map::run{0, 1, 4, 0}, host_map::run{-1, 1, 2, 2},
        host_map::run{0, 2, 4, 1}, host_map::run{0, -1, 2, 2}, host_map::run{4, 0, 1, 4},
        host_map::run{0, huge, huge, huge}, host_map::run{0, 0, -2, -2}})
    CHECK_THROWS_AS(host_map({wrong}, 4), std::invalid_argument);
  CHECK_THROWS_AS(host_map({}, 1), std::invalid_argument);
}
