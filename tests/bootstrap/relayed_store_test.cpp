// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/relayed_store.hpp"

#include "bootstrap/watched_store.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>

using namespace tutti;
using namespace std::chrono_literals;
using test::failure;
using test::run_task;
using test::watched_store;

namespace {

struct relay {
  explicit relay(std::chrono::milliseconds longest = 30s) {
    auto of = std::make_unique<watched_store>(context.get_executor(), contents, by);
    of->set_timeout(20s);
    store.emplace(
        context.get_executor(), std::move(of),
        [](const store_request& what) { return what.key.starts_with("once/") && is_read(what); },
        [this](std::chrono::milliseconds timeout) { return open(this, timeout); }, core::platform::real(),
        longest);
  }
  static task<std::unique_ptr<tutti::store>> open(relay* self, std::chrono::milliseconds timeout) {
    ++self->opened;
    if (self->out_of_reach) throw error(errc::join_failed, "out of reach");
    co_await self->reachable.wait(core::deadline_after(timeout));
    self->by.broken = false;
    std::unique_ptr<tutti::store> again =
        std::make_unique<watched_store>(self->context.get_executor(), self->contents, self->by);
    co_return std::move(again);
  }
  static bool is_read(const store_request& what) {
    return what.operation == store_operation::get ||
           (what.operation == store_operation::compare_exchange && what.value.empty());
  }
  struct asking {
    core::running_task running;
    std::string text;
    bool failed = false, done = false;
  };
  static task<> ask(relay* self, asking* by, std::string key, std::chrono::milliseconds timeout) {
    by->text = co_await self->store->get(std::move(key), timeout);
  }
  asking& ask(const std::string& key, std::chrono::milliseconds timeout = 20s) {
    asking& one = all.emplace_back();
    one.running.start(
        ask(this, &one, key, timeout),
        [](void* of, std::exception_ptr e) noexcept {
          static_cast<asking*>(of)->failed = e != nullptr;
          static_cast<asking*>(of)->done = true;
        },
        &one);
    return one;
  }
  void settle() {
    context.restart();
    context.poll();
  }

  boost::asio::io_context context;
  memory_store contents{context.get_executor()};
  watched_store::watch by;
  int opened = 0;
  core::wakeup reachable{context.get_executor()};
  bool out_of_reach = false;
  std::optional<bootstrap::relayed_store> store;
  std::deque<asking> all;
};

}  // namespace

TEST_SUITE("bootstrap/relayed_store") {
  TEST_CASE("a value that is written once is asked for once") {
    relay at;
    run_task(at.context, at.contents.set("once/a", "1"));
    for (int i = 0; i < 5; ++i) CHECK(run_task(at.context, at.store->get("once/a")) == "1");
    CHECK(run_task(at.context, at.store->compare_exchange("once/a", "", "")).value == "1");
    CHECK(at.by.requests == 1);
  }

  TEST_CASE("those that wait share a request, and all get the value") {
    relay at;
    for (int i = 0; i < 8; ++i) at.ask("once/a");
    at.settle();
    CHECK(at.by.requests == 1);
    run_task(at.context, at.contents.set("once/a", "1"));
    test::run_until(at.context, [&] { return at.all.back().done; });
    for (const relay::asking& one : at.all) CHECK(one.text == "1");
    CHECK(at.by.requests == 1);
  }

  TEST_CASE("the others go on when the one that asks leaves") {
    relay at;
    at.ask("once/a");
    for (int i = 0; i < 3; ++i) at.ask("once/a");
    at.settle();
    at.all.pop_front();
    at.settle();
    CHECK(at.by.requests == 2);
    run_task(at.context, at.contents.set("once/a", "1"));
    test::run_until(at.context, [&] { return at.all.back().done; });
    for (const relay::asking& one : at.all) CHECK(one.text == "1");
  }

  TEST_CASE("each has its own time to wait") {
    relay at;
    at.ask("once/a", 20s);
    relay::asking& hasty = at.ask("once/a", 1ms);
    test::run_until(at.context, [&] { return hasty.done; });
    CHECK(hasty.failed);
    CHECK_FALSE(at.all.front().done);
    const failure none = test::failure_of([&] { run_task(at.context, at.store->get("once/b", 0ms)); });
    CHECK(none.code == errc::timed_out);
    CHECK(none.text.find("get('once/b') on store") != none.text.npos);
  }

  TEST_CASE("a request for what nobody waits for any more ends at the store; a long wait goes on") {
    relay at(1ms);
    relay::asking& patient = at.ask("once/a", 20s);
    test::run_until(at.context, [&] { return at.by.requests > 3; });
    CHECK_FALSE(patient.done);
    run_task(at.context, at.contents.set("once/a", "1"));
    test::run_until(at.context, [&] { return patient.done; });
    CHECK(patient.text == "1");
  }

  TEST_CASE("a read that waits for no key has all the time that it is given") {
    relay at(1ms);
    at.by.silent = true;
    const auto since = core::clock::now();
    const failure late =
        test::failure_of([&] { run_task(at.context, at.store->compare_exchange("once/a", "", "", 30ms)); });
    CHECK(late.code == errc::timed_out);
    CHECK(core::clock::now() - since >= 30ms);
  }

  TEST_CASE("what may change is not kept, nor is what is missing") {
    relay at;
    run_task(at.context, at.store->set("progress", "1"));
    CHECK(run_task(at.context, at.store->get("progress")) == "1");
    run_task(at.context, at.contents.set("progress", "2"));
    CHECK(run_task(at.context, at.store->get("progress")) == "2");
    CHECK(run_task(at.context, at.store->compare_exchange("once/a", "", "")).value.empty());
    run_task(at.context, at.contents.set("once/a", "1"));
    CHECK(run_task(at.context, at.store->compare_exchange("once/a", "", "")).value == "1");
    CHECK(run_task(at.context, at.store->append("progress", "3")) == 2);
  }

  TEST_CASE("an error of the store reaches all that ask, and is not kept") {
    relay at;
    at.by.broken = at.out_of_reach = true;
    for (int i = 0; i < 3; ++i) at.ask("once/a");
    test::run_until(at.context, [&] { return at.all.back().done; });
    for (const relay::asking& one : at.all) CHECK(one.failed);
    at.by.broken = false;
    run_task(at.context, at.contents.set("once/a", "1"));
    CHECK(run_task(at.context, at.store->get("once/a")) == "1");
  }

  TEST_CASE("a store that has gone is opened again, once for all, and they read there") {
    relay at;
    run_task(at.context, at.contents.set("progress", "1"));
    at.by.broken = true;
    for (const char* const key : {"progress", "once/a", "once/a", "once/b"}) at.ask(key);
    at.settle();
    CHECK(at.opened == 1);
    at.reachable.notify();
    test::run_until(at.context, [&] { return at.all.front().done; });
    CHECK(at.all.front().text == "1");
    for (const char* const key : {"once/a", "once/b"}) run_task(at.context, at.contents.set(key, "2"));
    test::run_until(at.context, [&] { return std::ranges::all_of(at.all, &relay::asking::done); });
    CHECK(std::ranges::count(at.all, "2", &relay::asking::text) == 3);
    CHECK(at.opened == 1);
    at.by.broken = true;
    at.reachable.notify();
    CHECK(run_task(at.context, at.store->compare_exchange("once/c", "", "")).exchanged);
    CHECK(at.opened == 2);
  }

  TEST_CASE("another opens the store when the one that does leaves, and none waits longer than it may") {
    relay at;
    at.by.broken = true;
    at.ask("once/a");
    at.ask("once/b");
    at.settle();
    relay::asking& hasty = at.ask("once/c", 1ms);
    test::run_until(at.context, [&] { return hasty.done; });
    CHECK(hasty.failed);
    at.all.pop_front();
    at.settle();
    CHECK(at.opened == 2);
    at.reachable.notify();
    run_task(at.context, at.contents.set("once/b", "1"));
    test::run_until(at.context, [&] { return at.all.front().done; });
    CHECK(at.all.front().text == "1");
  }

  TEST_CASE("a change is not repeated, for it may have happened") {
    relay at;
    at.by.broken = true;
    at.reachable.notify();
    CHECK(test::failure_of([&] { run_task(at.context, at.store->set("progress", "1")); }).code ==
          errc::peer_failed);
    CHECK(at.by.requests == 1);
  }

  TEST_CASE("it keeps a limited number of bytes") {
    relay at;
    const std::string large(bootstrap::relayed_store::most_kept / 3, 'x');
    for (const char* const key : {"once/a", "once/b", "once/c", "once/d"}) {
      run_task(at.context, at.contents.set(key, large));
      CHECK(run_task(at.context, at.store->get(key)) == large);
    }
    CHECK(at.by.requests == 4);
    CHECK(run_task(at.context, at.store->get("once/d")) == large);
    CHECK(at.by.requests == 4);
    CHECK(run_task(at.context, at.store->get("once/a")) == large);
    CHECK(at.by.requests == 5);
  }
}
