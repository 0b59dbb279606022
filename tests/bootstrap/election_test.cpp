// SPDX-License-Identifier: Apache-2.0
// Who coordinates, as launchers come, start ranks, die and leave; in a store in memory, in which the test removes the
// keys of the dead.
#include "bootstrap/election.hpp"

#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::launcher_entry;
using bootstrap::launcher_list;
using test::run_task;

namespace {

struct launchers {
  launchers() {
    for (int i = 0; i < 4; ++i) {
      const std::string id(1, static_cast<char>('a' + i));
      all.push_back(std::make_unique<bootstrap::election>(
          store, launcher_entry{id, "10.0.0." + id, static_cast<std::uint16_t>(4000 + i)}));
    }
  }
  launcher_list come(int i) {
    run_task(context, store.set(all.at(i)->life_key(), "here"));
    return look(i);
  }
  launcher_list look(int i, std::set<std::string> dead = {}) {
    return run_task(context, all.at(i)->look(std::move(dead), core::deadline_after(50s)));
  }
  void runs(int i) { run_task(context, all.at(i)->runs(look(i).run, 2 * i, 2, core::deadline_after(50s))); }
  void die(int i) { run_task(context, store.erase(all.at(i)->life_key())); }

  boost::asio::io_context context;
  memory_store store{context.get_executor()};
  std::vector<std::unique_ptr<bootstrap::election>> all;
};

}  // namespace

TEST_SUITE("bootstrap/election") {
  TEST_CASE("the oldest launcher begins a run; when it dies, the oldest one with ranks goes on with it") {
    launchers at;
    const launcher_list first = at.come(0);
    CHECK(first.coordinator == "a");
    CHECK(!first.run.empty());
    for (const int i : {1, 2, 3}) CHECK(at.come(i).next().id == "a");
    CHECK(at.look(1).find("c")->port == 4002);
    for (const int i : {0, 2, 3}) at.runs(i);
    at.die(0);
    CHECK(at.look(3).next().id == "c");  // b has no ranks of this run
    CHECK(at.look(3).coordinator == "a");
    CHECK(at.look(1).coordinator == "a");
    const launcher_list next = at.look(2);
    CHECK(next.coordinator == "c");
    CHECK(next.run == first.run);
    launcher_list now = at.look(3);
    const launcher_entry* const gone = now.find("a");
    REQUIRE(gone != nullptr);
    CHECK(gone->is == launcher_entry::state::silent);
    CHECK(gone->first_rank == 0);
  }

  TEST_CASE("a launcher that is known to be dead is not waited for until its key is gone") {
    launchers at;
    for (const int i : {0, 1, 2}) at.come(i);
    for (const int i : {0, 1, 2}) at.runs(i);
    CHECK(at.look(2).next().id == "a");
    CHECK(at.look(2, {"a"}).next().id == "b");
    CHECK(at.look(2, {"a", "b"}).coordinator == "c");
    CHECK(at.look(2).find("b")->is == launcher_entry::state::dead);
  }

  TEST_CASE("a launcher whose key was gone for a while is in the list again") {
    launchers at;
    for (const int i : {0, 1}) at.come(i);
    for (const int i : {0, 1}) at.runs(i);
    at.die(0);
    CHECK(!at.look(1).find("a")->lives());
    CHECK(at.look(0).find("a")->lives());
    CHECK(at.look(0).coordinator == "b");
    at.die(1);
    CHECK(at.look(0).coordinator == "a");
  }

  TEST_CASE("when no launcher with ranks is left, the oldest one begins another run") {
    launchers at;
    const launcher_list first = at.come(0);
    at.runs(0);
    at.come(1);
    at.die(0);
    const launcher_list next = at.look(1);
    CHECK(next.coordinator == "b");
    CHECK(next.run != first.run);
    CHECK(next.launchers.size() == 1);
  }

  TEST_CASE("a launcher that leaves is not in the list any more") {
    launchers at;
    for (const int i : {0, 1}) at.come(i);
    for (const int i : {0, 1}) at.runs(i);
    run_task(at.context, at.all[0]->leave(core::deadline_after(50s)));
    launcher_list next = at.look(1);
    CHECK(next.coordinator == "b");
    CHECK(next.find("a") == nullptr);
  }
}
