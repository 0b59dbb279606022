// SPDX-License-Identifier: Apache-2.0
#include "comm/grouping.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;

namespace {

constexpr int most = 32;

std::vector<std::string> unknown(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

// Every rank is at one place in one group and one column, each column has one rank of each group before its takers,
// and nothing is larger than it may be.
void check_division(const comm::grouping& g, int ranks) {
  REQUIRE(g.groups() >= 2);
  REQUIRE(g.columns() >= 2);
  std::vector<int> sorted = g.order();
  std::ranges::sort(sorted);
  for (int r = 0; r < ranks; ++r)
    if (sorted[static_cast<std::size_t>(r)] != r) FAIL("rank ", r, " is not in one group");
  std::set<std::pair<int, int>> in_groups, in_columns;
  std::size_t smallest = sorted.size(), largest = 0;
  for (int i = 0; i < g.groups(); ++i) {
    smallest = std::min(smallest, g.group(i).size());
    largest = std::max(largest, g.group(i).size());
  }
  REQUIRE(largest <= static_cast<std::size_t>(most));
  REQUIRE(largest - smallest <= 1);
  REQUIRE(smallest == static_cast<std::size_t>(g.columns()));
  for (int r = 0; r < ranks; ++r) {
    const comm::grouping::place at = g.of(r);
    REQUIRE(g.group(at.group)[static_cast<std::size_t>(at.near)] == r);
    REQUIRE(g.size_of_column(at.column) <= most);
    REQUIRE(at.across < g.size_of_column(at.column));
    REQUIRE(g.rank_at(at.column, at.across) == r);
    REQUIRE(in_groups.emplace(at.group, at.near).second);
    REQUIRE(in_columns.emplace(at.column, at.across).second);
    const bool takes = at.near >= g.columns();
    REQUIRE(takes == (at.across >= g.groups()));
    if (!takes) REQUIRE((at.near == at.column && at.across == at.group));
  }
}

}  // namespace

TEST_CASE(
    "grouping: any number of ranks up to 900 is divided evenly, about as many groups as ranks in each") {
  for (int ranks = 4; ranks <= 900; ++ranks) {
    CAPTURE(ranks);
    const comm::grouping g(unknown(ranks), most);
    check_division(g, ranks);
    CHECK(g.in_rank_order());
  }
  CHECK(comm::grouping(unknown(64), most).groups() == 8);
  CHECK(comm::grouping(unknown(1024), most).groups() == 32);
}

TEST_CASE("grouping: too few or too many ranks have no groups") {
  for (const int ranks : {1, 2, 3, 1025, 4096}) CHECK(comm::grouping(unknown(ranks), most).groups() == 0);
}

TEST_CASE("grouping: ranks that share a cache are a group") {
  std::vector<std::string> caches;
  for (int r = 0; r < 24; ++r) caches.push_back(std::string("L3 of ") + static_cast<char>('a' + r % 3));
  const comm::grouping g(caches, most);
  check_division(g, 24);
  CHECK(g.groups() == 3);
  CHECK_FALSE(g.in_rank_order());
  for (int r = 0; r < 24; ++r) CHECK(g.of(r).group == r % 3);
  // One rank more on the last cache: its group is the larger one, and comes first.
  caches.push_back(caches.back());
  const comm::grouping uneven(caches, most);
  check_division(uneven, 25);
  CHECK(uneven.groups() == 3);
  CHECK(uneven.group(0).size() == 9);
  for (int r = 0; r < 25; ++r)
    CHECK((uneven.of(r).group == 0) == (caches[static_cast<std::size_t>(r)] == caches[24]));
}

TEST_CASE("grouping: caches that are used unlike, are not all known or hold a rank each do not decide") {
  std::vector<std::string> unlike(40, "a");
  unlike[7] = "b";
  std::vector<std::string> some(40, "a");
  some[3] = "";
  std::vector<std::string> each;
  for (int r = 0; r < 40; ++r) each.push_back(std::to_string(r));
  for (const auto& caches : {unlike, some, each}) {
    const comm::grouping g(caches, most);
    check_division(g, 40);
    CHECK(g.groups() == comm::grouping(unknown(40), most).groups());
  }
}
