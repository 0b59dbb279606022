// SPDX-License-Identifier: Apache-2.0
// The members of the next world, with orders of events that no launcher would produce on purpose.
#include "bootstrap/membership.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

using tutti::bootstrap::membership;
using tutti::bootstrap::quorum;

namespace {

membership::arrival arrival_of(int number, int start = 0, std::uint64_t place = 0) {
  membership::arrival a;
  a.number = number;
  a.start = start;
  a.place = place;
  return a;
}

std::vector<int> numbers_of(const membership::world& w) {
  std::vector<int> numbers;
  for (const membership::arrival& a : w.members) numbers.push_back(a.number);
  return numbers;
}

using numbers = std::vector<int>;

}  // namespace

TEST_SUITE("bootstrap/membership") {
  TEST_CASE("the first world has all started ranks, in the order of their numbers") {
    membership m(1);
    m.started(0, 0, 0);
    m.started(0, 1, 0);
    m.started(1, 2, 0);
    m.came(arrival_of(2));
    m.came(arrival_of(0));
    CHECK(!m.decide());
    CHECK(m.obstacle().find("rank 1 ") != std::string::npos);
    m.came(arrival_of(1));
    const auto first = m.decide();
    REQUIRE(first);
    CHECK(first->epoch == 0);
    CHECK(numbers_of(*first) == numbers{0, 1, 2});
    CHECK(!m.decide());
  }

  TEST_CASE("the end of a process may be heard of after the arrival of its successor") {
    membership m(1);
    for (int number = 0; number < 2; ++number) {
      m.started(0, number, 0);
      m.came(arrival_of(number));
    }
    REQUIRE(m.decide());
    m.came(arrival_of(1, 1));
    CHECK(m.newcomers() == 1);
    m.ended(1, 0, false);
    m.started(0, 1, 1);
    CHECK(m.newcomers() == 1);
  }

  TEST_CASE("newcomers wait for the members and follow them in order, whole nodes at a time") {
    membership m(1);
    m.started(0, 0, 0);
    m.came(arrival_of(0));
    REQUIRE(m.decide());
    m.started(1, 1, 0);
    m.started(1, 2, 0);
    m.came(arrival_of(2));
    CHECK(m.newcomers() == 0);  // the other rank of its node has not come yet
    CHECK(!m.decide());
    m.came(arrival_of(1));
    CHECK(m.newcomers() == 2);
    CHECK(!m.decide());  // the running world continues until it asks
    m.started(2, 3, 0);
    m.came(arrival_of(0));
    const auto second = m.decide();
    REQUIRE(second);
    CHECK(numbers_of(*second) == numbers{0, 1, 2});
    CHECK(m.newcomers() == 0);
    m.came(arrival_of(3));
    CHECK(m.newcomers() == 1);
  }

  TEST_CASE("dead ranks are not waited for, and no world has fewer nodes than the minimum") {
    membership m(2);
    m.started(0, 0, 0);
    m.started(1, 1, 0);
    m.came(arrival_of(0));
    m.came(arrival_of(1));
    REQUIRE(m.decide());
    m.node_ended(1);
    m.came(arrival_of(0));
    CHECK(!m.decide());
    CHECK(m.obstacle().find("1 of at least 2 nodes") != std::string::npos);
    m.started(2, 2, 0);
    CHECK(!m.decide());
    m.came(arrival_of(2));
    const auto next = m.decide();
    REQUIRE(next);
    CHECK(numbers_of(*next) == numbers{0, 2});
  }

  TEST_CASE("a restarted process is a newcomer, even if its earlier end is reported later") {
    membership m(1);
    for (const int n : {0, 1, 2}) m.started(0, n, 0);
    for (const int n : {0, 1, 2}) m.came(arrival_of(n));
    REQUIRE(m.decide());
    m.came(arrival_of(0, 1));  // the second process of rank 0
    CHECK(m.newcomers() == 1);
    m.ended(0, 0, false);  // of the first process: does not affect the second
    CHECK(m.newcomers() == 1);
    m.came(arrival_of(1));
    m.came(arrival_of(2));
    const auto next = m.decide();
    REQUIRE(next);
    CHECK(numbers_of(*next) == numbers{1, 2, 0});
    m.ended(0, 1, false);
    m.came(arrival_of(0, 1));  // it had come before it died
    CHECK(m.newcomers() == 0);
  }

  TEST_CASE("a rank that has stopped waiting is not admitted") {
    membership m(1);
    m.started(0, 0, 0);
    m.came(arrival_of(0, 0, 7));
    m.withdraw(7);
    CHECK(!m.decide());
    m.came(arrival_of(0, 0, 8));
    const auto first = m.decide();
    REQUIRE(first);
    CHECK(first->members.front().place == 8);
  }

  TEST_CASE("when the members have finished their work, no newcomer is admitted") {
    membership m(1);
    m.started(0, 0, 0);
    m.started(0, 1, 0);
    m.came(arrival_of(0));
    m.came(arrival_of(1));
    REQUIRE(m.decide());
    m.started(1, 2, 0);
    m.came(arrival_of(2));
    m.ended(0, 0, true);
    CHECK(!m.over());
    m.ended(1, 0, true);
    CHECK(m.over());
    CHECK(!m.decide());
  }

  TEST_CASE("when all members have died, the waiting ranks start again") {
    membership m(1);
    m.started(0, 0, 0);
    m.came(arrival_of(0));
    REQUIRE(m.decide());
    m.started(1, 1, 0);
    m.came(arrival_of(1));
    m.ended(0, 0, false);
    CHECK(!m.over());
    const auto next = m.decide();
    REQUIRE(next);
    CHECK(numbers_of(*next) == numbers{1});
  }

  TEST_CASE("newcomers alone wait until no process of a silent node can still run") {
    membership m(1);
    m.started(0, 0, 0);
    m.started(1, 1, 0);
    m.came(arrival_of(0));
    m.came(arrival_of(1));
    REQUIRE(m.decide());
    m.came(arrival_of(0, 1));  // restarted: the world is node 1's alone
    const int loss = m.node_lost(1);
    CHECK(!m.decide());
    CHECK(m.obstacle().find("may still run on a node that is out of reach") != std::string::npos);
    m.overdue(loss);
    const auto next = m.decide();
    REQUIRE(next);
    CHECK(numbers_of(*next) == numbers{0});
  }

  TEST_CASE("a quorum: more members are left here than may still run elsewhere") {
    for (const quorum needed : {quorum::none, quorum::majority}) {
      membership m(1, needed);
      for (const int n : {0, 1, 2, 3}) m.started(n, n, 0);
      for (const int n : {0, 1, 2, 3}) m.came(arrival_of(n));
      REQUIRE(m.decide());
      m.ended(3, 0, false);  // ranks known to have ended do not count
      m.node_lost(2);
      CHECK(m.minority().empty());
      m.came(arrival_of(0, 0, 5));
      m.node_lost(1);  // one is here, and two may be there
      if (needed == quorum::none) {
        CHECK(m.minority().empty());
        CHECK(m.decide());
        continue;
      }
      CHECK(m.minority().find("1 rank is left here, and 2 may still run") != std::string::npos);
      CHECK(!m.decide());
      m.started(0, 4, 0);  // newcomers are no members
      m.came(arrival_of(4, 0, 6));
      CHECK(!m.decide());
    }
  }

  TEST_CASE("a quorum: two against one; and one alone if the others are known to have ended") {
    membership m(1, quorum::majority);
    for (const int n : {0, 1, 2}) m.started(n, n, 0);
    for (const int n : {0, 1, 2}) m.came(arrival_of(n));
    REQUIRE(m.decide());
    m.node_lost(2);
    for (const int n : {0, 1}) m.came(arrival_of(n));
    REQUIRE(m.decide());
    m.node_ended(1);
    m.came(arrival_of(0));
    const auto last = m.decide();
    REQUIRE(last);
    CHECK(numbers_of(*last) == numbers{0});
  }

  TEST_CASE("a quorum: ranks that must have ended since do not count") {
    membership m(1, quorum::majority);
    for (const int n : {0, 1, 2, 3, 4}) m.started(n, n, 0);
    for (const int n : {0, 1, 2, 3, 4}) m.came(arrival_of(n));
    REQUIRE(m.decide());
    const int first = m.node_lost(4);
    m.overdue(first);
    m.node_lost(3);
    m.node_lost(2);
    CHECK(m.minority().find("2 ranks are left here, and 2 may still run") != std::string::npos);
    m.ended(1, 0, true);
    CHECK(m.minority().find("1 rank is left here, and 2 may still run") != std::string::npos);
  }

  TEST_CASE("a quorum: three against two that are gone and two that may run") {
    membership m(1, quorum::majority);
    for (int n = 0; n < 7; ++n) m.started(n, n, 0);
    for (int n = 0; n < 7; ++n) m.came(arrival_of(n));
    REQUIRE(m.decide());
    for (const int n : {5, 6}) m.overdue(m.node_lost(n));
    for (const int n : {3, 4}) m.node_lost(n);
    CHECK(m.minority().empty());
    for (const int n : {0, 1, 2}) m.came(arrival_of(n));
    CHECK(m.decide());
  }

  // Random orders of starts, arrivals and deaths, against a model that knows which ranks live.
  TEST_CASE("100,000 random steps: worlds have only live ranks, in order, and never too few") {
    int worlds_in_all = 0;
    for (std::uint32_t seed = 0; seed < 500; ++seed) {
      CAPTURE(seed);
      std::mt19937 chance(seed);
      const int least = 1 + static_cast<int>(chance() % 3);
      membership m(least);
      struct process {
        int node, start;
        bool alive, waits;
      };
      std::map<int, process> all;
      numbers world;
      int next_number = 0, next_node = 0, worlds = 0;
      const auto start_node = [&] {
        const int ranks = 1 + static_cast<int>(chance() % 3);
        for (int i = 0; i < ranks; ++i) {
          m.started(next_node, next_number, 0);
          all[next_number++] = {next_node, 0, true, false};
        }
        ++next_node;
      };
      for (int i = 0; i < least; ++i) start_node();
      for (int step = 0; step < 200; ++step) {
        const std::uint32_t what = chance() % 16;
        auto who = std::next(all.begin(), static_cast<long>(chance() % all.size()));
        process& p = who->second;
        if (what == 0 && next_node < 12) {
          start_node();
        } else if (what == 1 && p.alive) {
          m.ended(who->first, p.start, false);
          p.alive = p.waits = false;
        } else if (what == 2 && !p.alive) {
          m.started(p.node, who->first, ++p.start);
          p.alive = true;
          std::erase(world, who->first);
        } else if (what == 3) {
          chance() % 2 == 0 ? m.node_ended(p.node) : m.overdue(m.node_lost(p.node));
          for (auto& [number, q] : all)
            if (q.node == p.node) q.alive = q.waits = false;
        } else if (p.alive) {
          m.came(arrival_of(who->first, p.start));
          p.waits = true;
        }
        const auto made = m.decide();
        if (!made) continue;
        ++worlds;
        const numbers members = numbers_of(*made);
        std::set<int> nodes, once(members.begin(), members.end());
        REQUIRE(once.size() == members.size());
        for (const int n : members) {
          REQUIRE(all.at(n).alive);
          REQUIRE(all.at(n).waits);
          all.at(n).waits = false;
          nodes.insert(all.at(n).node);
        }
        REQUIRE(static_cast<int>(nodes.size()) >= least);
        // Its live earlier members come first, in their order.
        numbers before;
        std::copy_if(world.begin(), world.end(), std::back_inserter(before),
                     [&](int n) { return all.at(n).alive; });
        REQUIRE(members.size() >= before.size());
        REQUIRE(std::equal(before.begin(), before.end(), members.begin()));
        REQUIRE(std::is_sorted(members.begin() + static_cast<long>(before.size()), members.end()));
        world = members;
      }
      // There is a world as soon as all live ranks have come, and are enough.
      std::set<int> nodes;
      for (const auto& [number, p] : all)
        if (p.alive) nodes.insert(p.node);
      bool made = false;
      for (auto& [number, p] : all)
        if (p.alive) {
          m.came(arrival_of(number, p.start));
          made = m.decide() || made;
        }
      CHECK(made == (static_cast<int>(nodes.size()) >= least));
      worlds_in_all += worlds;
    }
    CHECK(worlds_in_all > 3'000);
  }
}
