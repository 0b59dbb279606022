// SPDX-License-Identifier: Apache-2.0
// The conformance test of all stores: one function, called with two handles to one store.
#pragma once

#include "core/running_task.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>

namespace tutti::test {

struct waited {
  bool done = false;
  failure how;
  std::string value;
};

inline task<> get_into(store& from, std::string key, std::chrono::milliseconds timeout, waited* result) {
  std::exception_ptr e;
  try {
    result->value = co_await from.get(key, timeout);
  } catch (...) {
    e = std::current_exception();
  }
  result->how = describe(e);
  result->done = true;
}

inline task<> wait_into(store& from, std::string key, std::chrono::milliseconds timeout, waited* result) {
  std::exception_ptr e;
  try {
    co_await from.wait(key, timeout);
  } catch (...) {
    e = std::current_exception();
  }
  result->how = describe(e);
  result->done = true;
}

// `a` and `b` are handles to one empty store, on `context`.
inline void check_store(boost::asio::io_context& context, store& a, store& b) {
  using namespace std::chrono_literals;
  const auto get = [&](store& s, const char* key) { return run_task(context, s.get(key, 0ms)); };

  SUBCASE("set, get and erase") {
    run_task(context, a.set("k", "one"));
    CHECK(get(b, "k") == "one");
    run_task(context, b.set("k", "two"));
    CHECK(get(a, "k") == "two");
    CHECK(run_task(context, a.erase("k")));
    CHECK_FALSE(run_task(context, b.erase("k")));
    const failure f = failure_of([&] { get(a, "k"); });
    CHECK(f.code == errc::timed_out);
    CHECK_MESSAGE(f.says("k'"), f.text);
  }
  SUBCASE("values may contain any byte, or none") {
    std::string all;
    for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
    run_task(context, a.set(all, all + all));
    CHECK(run_task(context, b.get(all, 0ms)) == all + all);
  }
  SUBCASE("an empty value is a value") {
    run_task(context, a.set("k", ""));
    CHECK(get(b, "k").empty());
    CHECK(run_task(context, a.count()) == 1);
    run_task(context, b.wait("k", 0ms));
  }
  SUBCASE("a long value") {
    const std::string large(1u << 20, 'x');
    run_task(context, a.set("k", large));
    CHECK(get(b, "k") == large);
  }
  SUBCASE("add counts from 0, in decimal") {
    CHECK(run_task(context, a.add("n", 5)) == 5);
    CHECK(run_task(context, b.add("n", -7)) == -2);
    CHECK(get(a, "n") == "-2");
    run_task(context, a.set("n", "40"));
    CHECK(run_task(context, b.add("n", 2)) == 42);
  }
  SUBCASE("add refuses text that is no number, and overflow, without a change") {
    run_task(context, a.set("n", "four"));
    failure f = failure_of([&] { run_task(context, b.add("n", 1)); });
    CHECK(f.code == errc::invalid_argument);
    CHECK(get(a, "n") == "four");
    CHECK(run_task(context, a.add("m", INT64_MAX)) == INT64_MAX);
    f = failure_of([&] { run_task(context, b.add("m", 1)); });
    CHECK(f.code == errc::invalid_argument);
    CHECK(get(a, "m") == std::to_string(INT64_MAX));
  }
  SUBCASE("compare_exchange") {
    store_exchange e = run_task(context, a.compare_exchange("k", "", "first"));
    CHECK(e.exchanged);
    CHECK(e.value == "first");
    e = run_task(context, b.compare_exchange("k", "", "second"));
    CHECK_FALSE(e.exchanged);
    CHECK(e.value == "first");
    e = run_task(context, b.compare_exchange("k", "first", "second"));
    CHECK(e.exchanged);
    CHECK(get(a, "k") == "second");
    e = run_task(context, a.compare_exchange("absent", "something", "x"));
    CHECK_FALSE(e.exchanged);
    CHECK(e.value.empty());
    CHECK(run_task(context, a.count("absent")) == 0);
    // An empty value only reads a key, or removes it.
    CHECK(run_task(context, b.compare_exchange("absent", "", "")).exchanged);
    CHECK(run_task(context, b.count("absent")) == 0);
    e = run_task(context, b.compare_exchange("k", "", ""));
    CHECK_FALSE(e.exchanged);
    CHECK(e.value == "second");
    e = run_task(context, a.compare_exchange("k", "second", ""));
    CHECK(e.exchanged);
    CHECK(e.value.empty());
    CHECK(run_task(context, b.count("k")) == 0);
  }
  SUBCASE("append") {
    CHECK(run_task(context, a.append("k", "one ")) == 4);
    CHECK(run_task(context, b.append("k", "two")) == 7);
    CHECK(get(a, "k") == "one two");
  }
  SUBCASE("count, by prefix") {
    CHECK(run_task(context, a.count()) == 0);
    for (const char* key : {"a", "b", "b/1", "b/2", "c"}) run_task(context, a.set(key, ""));
    CHECK(run_task(context, b.count()) == 5);
    CHECK(run_task(context, b.count("b")) == 3);
    CHECK(run_task(context, b.count("b/")) == 2);
    CHECK(run_task(context, b.count("d")) == 0);
  }
  SUBCASE("any operation that sets the key ends a wait") {
    waited w[5];
    core::background_tasks tasks;
    tasks.start(get_into(a, "set", 50s, &w[0]));
    tasks.start(get_into(b, "add", 50s, &w[1]));
    tasks.start(get_into(a, "append", 50s, &w[2]));
    tasks.start(get_into(b, "exchange", 50s, &w[3]));
    tasks.start(wait_into(a, "set", 50s, &w[4]));
    // A wait does not block later operations.
    run_task(context, b.set("other", "x"));
    run_task(context, a.set("other", "y"));
    for (const waited& each : w) CHECK_FALSE(each.done);
    run_task(context, b.set("set", "1"));
    run_task(context, a.add("add", 2));
    run_task(context, b.append("append", "3"));
    run_task(context, a.compare_exchange("exchange", "", "4"));
    run_until(context, [&] { return w[0].done && w[1].done && w[2].done && w[3].done && w[4].done; });
    for (const waited& each : w) CHECK_MESSAGE(each.how.code == errc::success, each.how.text);
    CHECK(w[0].value + w[1].value + w[2].value + w[3].value == "1234");
  }
  SUBCASE("a wait for a missing key ends at its timeout, with an error that says so") {
    for (const bool whole : {true, false}) {
      waited w;
      const auto begin = std::chrono::steady_clock::now();
      run_task(context, whole ? get_into(a, "lost", 40ms, &w) : wait_into(a, "lost", 40ms, &w));
      CHECK(std::chrono::steady_clock::now() - begin >= 40ms);
      CHECK(w.how.code == errc::timed_out);
      CHECK_MESSAGE(w.how.says("lost"), w.how.text);
      CHECK_MESSAGE(w.how.says("_store"), w.how.text);  // its name
      CHECK_MESSAGE(w.how.says("40 ms"), w.how.text);
    }
    // The wait has ended for good: setting the key later has no effect on it.
    run_task(context, b.set("lost", "found"));
    CHECK(get(a, "lost") == "found");
  }
  SUBCASE("a wait may be dropped") {
    waited w;
    {
      core::background_tasks tasks;
      tasks.start(get_into(a, "k", 50s, &w));
      run_task(context, b.set("other", ""));
    }
    run_task(context, b.set("k", "v"));
    CHECK(get(a, "k") == "v");
    CHECK_FALSE(w.done);
  }
  SUBCASE("a wait ends with its scope, for the scope's reason") {
    waited w[2];
    scope work;
    work.spawn(get_into(a, "k", 50s, &w[0]));
    work.spawn(wait_into(b, "k", 50s, &w[1]));
    run_task(context, b.set("other", ""));
    work.cancel();
    run_until(context, [&] { return work.running() == 0; });
    for (const waited& each : w) {
      CHECK(each.how.code == errc::cancelled);
      CHECK_MESSAGE(each.how.says("k') on "), each.how.text);
    }
    run_task(context, a.set("k", "v"));
    CHECK(get(b, "k") == "v");
  }
  SUBCASE("many waits at once, for one key and for many") {
    constexpr int number = 200;
    std::vector<waited> w(2 * number);
    core::background_tasks tasks;
    for (int i = 0; i < number; ++i) {
      tasks.start(get_into(i % 2 != 0 ? a : b, "one", 50s, &w[static_cast<std::size_t>(i)]));
      tasks.start(
          get_into(i % 2 != 0 ? a : b, std::to_string(i), 50s, &w[static_cast<std::size_t>(number + i)]));
    }
    run_task(context, a.set("one", "x"));
    for (int i = number; i-- > 0;) run_task(context, b.set(std::to_string(i), std::to_string(i)));
    run_until(context, [&] {
      for (const waited& each : w)
        if (!each.done) return false;
      return true;
    });
    for (int i = 0; i < number; ++i) {
      CHECK(w[static_cast<std::size_t>(i)].value == "x");
      CHECK(w[static_cast<std::size_t>(number + i)].value == std::to_string(i));
    }
  }
  SUBCASE("wrong arguments") {
    failure f = failure_of([&] { run_task(context, a.set("", "x")); });
    CHECK(f.code == errc::invalid_argument);
    f = failure_of([&] { run_task(context, a.get("")); });
    CHECK(f.code == errc::invalid_argument);
    f = failure_of([&] { run_task(context, a.set("k", std::string(a.most_bytes(), 'x'))); });
    CHECK(f.code == errc::invalid_argument);
    CHECK(run_task(context, a.count()) == 0);
  }
  SUBCASE("the largest value, and one byte more") {
    run_task(context, a.set("key", std::string(a.most_bytes() - 20, 'x')));
    CHECK(get(b, "key").size() == a.most_bytes() - 20);
    const failure f = failure_of([&] { run_task(context, b.append("key", std::string(64, 'y'))); });
    CHECK(f.code == errc::resources);
    CHECK(get(a, "key").size() == a.most_bytes() - 20);
    const std::string prefix(a.most_bytes() + 1, 'x');
    CHECK(failure_of([&] { run_task(context, a.count(prefix)); }).code == errc::invalid_argument);
    CHECK(run_task(context, a.count()) == 1);
  }
}

}  // namespace tutti::test
