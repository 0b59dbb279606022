// SPDX-License-Identifier: Apache-2.0
// Who coordinates, as launchers come, start ranks, die and leave; in a store in memory, in which the test removes the
// keys of the dead.
#include "bootstrap/election.hpp"

#include "core/running_task.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <tutti/as_result.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::launcher_entry;
using bootstrap::launcher_list;
using test::run_task;

namespace {

// Takes turns of the loop for each operation, as one that sends requests.
class slow_store final : public store {
 public:
  slow_store(boost::asio::any_io_executor executor, memory_store& at)
      : executor_(std::move(executor)), at_(at) {}
  std::string name() const override { return "slow"; }

 private:
  task<store_answer> carry_out(store_request what) override {
    co_await boost::asio::post(executor_, boost::asio::deferred);
    store_answer answer = co_await at_.perform(std::move(what));
    co_await boost::asio::post(executor_, boost::asio::deferred);
    co_return std::move(answer);
  }

  boost::asio::any_io_executor executor_;
  memory_store& at_;
};

task<> look_at(bootstrap::election& of) { co_await of.look({}, core::deadline_after(50s)); }

task<> look_unless_it_has_left(bootstrap::election& of) {
  const auto looked = co_await as_result(look_at(of));
  if (looked.error) CHECK(looked.error == errc::cancelled);
}

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
  void step(int handlers) {
    context.restart();
    for (int i = 0; i < handlers; ++i) context.poll_one();
  }

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

  TEST_CASE("calls of one launcher that overlap lose no change of another one") {
    for (int before = 0; before < 12; ++before)
      for (int between = 0; between < 12; ++between) {
        launchers at;
        slow_store slow(at.context.get_executor(), at.store);
        at.come(0);
        bootstrap::election first(slow, {"a", "10.0.0.a", 4000});
        const std::string run = at.look(0).run;
        run_task(at.context, first.runs(run, 0, 2, core::deadline_after(50s)));
        for (const int i : {1, 2}) at.come(i);
        for (const int i : {1, 2}) at.runs(i);
        at.come(3);
        at.die(1);
        core::background_tasks calls;
        calls.start(look_at(first));
        at.step(before);
        at.runs(3);
        at.die(2);
        at.step(between);
        calls.start(look_at(first));
        test::run_until(at.context, [&] { return calls.running() == 0; });
        launcher_list now = at.look(3);
        CHECK(now.find("a")->ranks == 2);
        CHECK(now.find("d")->ranks == 2);
        CHECK(!now.find("c")->lives());
      }
  }

  TEST_CASE("a launcher that leaves while it looks is not in the list any more") {
    for (int before = 0; before < 12; ++before) {
      launchers at;
      slow_store slow(at.context.get_executor(), at.store);
      for (const int i : {0, 1}) at.come(i);
      at.die(1);  // so that there is something to write
      bootstrap::election first(slow, {"a", "10.0.0.a", 4000});
      core::background_tasks calls;
      calls.start(look_unless_it_has_left(first));
      at.step(before);
      run_task(at.context, first.leave(core::deadline_after(50s)));
      test::run_until(at.context, [&] { return calls.running() == 0; });
      CHECK(at.look(1).find("a") == nullptr);
    }
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
