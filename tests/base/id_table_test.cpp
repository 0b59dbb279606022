// SPDX-License-Identifier: Apache-2.0
// Ids: found while in use, never afterwards, and forged ones are not found.
#include "base/id_table.hpp"
#include "p2p/transfer_states.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <map>
#include <vector>

using namespace tutti;
using namespace tutti::test;

using send_ids = base::id_table<p2p::send>;

TEST_CASE("ids: found until erased") {
  send_ids table;
  p2p::send s, other;
  const std::uint64_t of_s = table.insert(s);
  const std::uint64_t of_other = table.insert(other);
  CHECK(of_s != 0);
  CHECK(of_other != 0);
  CHECK(of_s != of_other);
  CHECK(table.find(of_s) == &s);
  CHECK(table.find(of_other) == &other);
  table.erase(of_s);
  CHECK(table.find(of_s) == nullptr);
  table.erase(of_s);  // a second erase does nothing
  const std::uint64_t again = table.insert(s);
  CHECK(again != of_s);  // the slot is reused, the id is not
  CHECK(table.find(again) == &s);
  CHECK(table.find(of_s) == nullptr);
  table.erase(of_s);  // a late erase has no effect
  CHECK(table.find(again) == &s);
}

TEST_CASE("ids: an id can be passed from a receive to a kept message and on") {
  p2p::receive_ids table;
  p2p::receive first, second;
  p2p::unexpected kept;
  const std::uint64_t name = table.insert(first);
  table.replace(name, kept);
  CHECK(table.find(name) == &kept);
  table.replace(name, second);
  CHECK(table.find(name) == &second);
  CHECK(table.in_use() == 1);
  table.erase(name);
  table.replace(name, first);  // too late: no effect
  CHECK(table.find(name) == nullptr);
  CHECK(table.in_use() == 0);
}

TEST_CASE("ids: no id is 0, even after the last generation of a slot") {
  send_ids table(~std::uint32_t{0} - 1);
  p2p::send s;
  std::uint64_t before = 0;
  for (int use = 0; use < 4; ++use) {
    const std::uint64_t name = table.insert(s);
    CHECK(name != 0);
    CHECK(name != before);
    CHECK(table.find(name) == &s);
    CHECK(table.find(before) == nullptr);
    CHECK(table.find(0) == nullptr);
    table.erase(name);
    before = name;
  }
  CHECK(table.in_use() == 0);
}

TEST_CASE("ids: forged ones are not found") {
  send_ids table;
  CHECK(table.find(0) == nullptr);
  CHECK(table.find(~std::uint64_t{0}) == nullptr);
  table.erase(0);
  table.erase(12345);
  p2p::send s;
  const std::uint64_t good = table.insert(s);
  random_numbers numbers(1);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t forged = numbers.next();
    if (forged == good) continue;
    CHECK(table.find(forged) == nullptr);
    table.erase(forged);
  }
  CHECK(table.find(good) == &s);
  CHECK(table.find(good + 1) == nullptr);
}

TEST_CASE("ids: the same results as a map, in any order") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  random_numbers numbers(seed);
  send_ids table;
  std::vector<p2p::send> sends(50);
  std::map<std::uint64_t, p2p::send*> in_use;
  std::vector<std::uint64_t> gone;
  for (int step = 0; step < 20'000; ++step) {
    if (in_use.size() < 40 && numbers.one_in(2)) {
      p2p::send& s = sends[numbers.below(sends.size())];
      const std::uint64_t transfer_id = table.insert(s);
      CHECK(in_use.emplace(transfer_id, &s).second);
    } else if (!in_use.empty()) {
      auto one = in_use.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(numbers.below(in_use.size())));
      CHECK(table.find(one->first) == one->second);
      table.erase(one->first);
      gone.push_back(one->first);
      in_use.erase(one);
    }
    if (!gone.empty()) CHECK(table.find(gone[numbers.below(gone.size())]) == nullptr);
  }
  std::size_t seen = 0;
  table.for_each([&](const p2p::send& s) {
    ++seen;
    CHECK(&s >= sends.data());
    CHECK(&s < sends.data() + sends.size());
  });
  CHECK(seen == in_use.size());
  CHECK(table.in_use() == in_use.size());
  for (const auto& [transfer_id, s] : in_use) CHECK(table.find(transfer_id) == s);
}
