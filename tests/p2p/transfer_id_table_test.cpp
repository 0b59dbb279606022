// SPDX-License-Identifier: Apache-2.0
// Names of transfers: found while in use, never afterwards, and no forged one is.
#include "p2p/transfer_id_table.hpp"
#include "p2p/transfer_states.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <map>
#include <vector>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("transfer ids: found by their kind, and only until erased") {
  p2p::transfer_id_table table;
  p2p::send s;
  p2p::receive r;
  const std::uint64_t of_s = table.insert(s);
  const std::uint64_t of_r = table.insert(r);
  CHECK(of_s != 0);
  CHECK(of_r != 0);
  CHECK(of_s != of_r);
  CHECK(table.find_send(of_s) == &s);
  CHECK(table.find_receive(of_s) == nullptr);
  CHECK(table.find_receive(of_r) == &r);
  CHECK(table.find_send(of_r) == nullptr);
  table.erase(of_s);
  CHECK(table.find_send(of_s) == nullptr);
  table.erase(of_s);  // once more does nothing
  const std::uint64_t again = table.insert(s);
  CHECK(again != of_s);  // the place is used again, the name is not
  CHECK(table.find_send(again) == &s);
  CHECK(table.find_send(of_s) == nullptr);
  table.erase(of_s);  // a late one does no harm
  CHECK(table.find_send(again) == &s);
}

TEST_CASE("transfer ids: a name can be handed from a receive to a kept message and on") {
  p2p::transfer_id_table table;
  p2p::receive first, second;
  p2p::unexpected kept;
  const std::uint64_t name = table.insert(first);
  table.replace(name, kept);
  CHECK(table.find_receive(name) == nullptr);
  CHECK(table.find_any(name).kept == &kept);
  table.replace(name, second);
  CHECK(table.find_receive(name) == &second);
  CHECK(table.find_any(name).kept == nullptr);
  CHECK(table.in_use() == 1);
  table.erase(name);
  table.replace(name, first);  // too late: nothing
  CHECK(table.find_receive(name) == nullptr);
  CHECK(table.in_use() == 0);
}

TEST_CASE("transfer ids: no name is 0, also after the last generation of a slot") {
  p2p::transfer_id_table table(~std::uint32_t{0} - 1);
  p2p::send s;
  std::uint64_t before = 0;
  for (int use = 0; use < 4; ++use) {
    const std::uint64_t name = table.insert(s);
    CHECK(name != 0);
    CHECK(name != before);
    CHECK(table.find_send(name) == &s);
    CHECK(table.find_send(before) == nullptr);
    CHECK(table.find_send(0) == nullptr);
    table.erase(name);
    before = name;
  }
  CHECK(table.in_use() == 0);
}

TEST_CASE("transfer ids: forged ones find nothing") {
  p2p::transfer_id_table table;
  CHECK(table.find_send(0) == nullptr);
  CHECK(table.find_receive(~std::uint64_t{0}) == nullptr);
  table.erase(0);
  table.erase(12345);
  p2p::send s;
  const std::uint64_t good = table.insert(s);
  random_numbers numbers(1);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t forged = numbers.next();
    if (forged == good) continue;
    CHECK(table.find_send(forged) == nullptr);
    table.erase(forged);
  }
  CHECK(table.find_send(good) == &s);
  CHECK(table.find_send(good + 1) == nullptr);
}

TEST_CASE("transfer ids: like a map, whatever the order") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  random_numbers numbers(seed);
  p2p::transfer_id_table table;
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
      CHECK(table.find_send(one->first) == one->second);
      table.erase(one->first);
      gone.push_back(one->first);
      in_use.erase(one);
    }
    if (!gone.empty()) CHECK(table.find_send(gone[numbers.below(gone.size())]) == nullptr);
  }
  std::size_t seen = 0;
  table.for_each([&](const p2p::transfer_id_table::named& is) {
    ++seen;
    CHECK(is.sending != nullptr);
    CHECK(is.receiving == nullptr);
    CHECK(is.kept == nullptr);
  });
  CHECK(seen == in_use.size());
  CHECK(table.in_use() == in_use.size());
  for (const auto& [transfer_id, s] : in_use) CHECK(table.find_send(transfer_id) == s);
}
