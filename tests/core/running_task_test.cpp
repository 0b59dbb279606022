// SPDX-License-Identifier: Apache-2.0
#include "core/running_task.hpp"

#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <coroutine>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using core::running_task;

namespace {

// Suspends its awaiters until the test opens it.
struct gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting = h; }
  void await_resume() const noexcept {}
  void open() { detail::resume_bounded(std::exchange(waiting, {})); }
};

struct outcome {
  int ends = 0;
  std::exception_ptr failure;
  static void note(void* self, std::exception_ptr failure) noexcept {
    auto& o = *static_cast<outcome*>(self);
    ++o.ends;
    o.failure = std::move(failure);
  }
};

struct marker {
  explicit marker(int* c) : count(c) { ++*count; }
  marker(const marker&) = delete;
  ~marker() { --*count; }
  int* count;
};

task<> nothing() { co_return; }
task<> fails() {
  throw std::runtime_error("no");
  co_return;
}
task<> passes(gate* g, int* alive) {
  const marker m(alive);
  co_await *g;
}
task<> passes_deep(gate* g, int* alive, int depth) {
  const marker m(alive);
  if (depth > 0) {
    co_await passes_deep(g, alive, depth - 1);
  } else {
    co_await *g;
  }
}

}  // namespace

TEST_CASE("it runs until its first suspension, and reports its end once") {
  outcome end;
  running_task t;
  CHECK_FALSE(t.running());
  t.start(nothing(), &outcome::note, &end);
  CHECK(end.ends == 1);
  CHECK_FALSE(end.failure);
  CHECK_FALSE(t.running());

  gate g;
  int alive = 0;
  t.start(passes(&g, &alive), &outcome::note, &end);
  CHECK(t.running());
  CHECK(alive == 1);
  CHECK(end.ends == 1);
  g.open();
  CHECK(end.ends == 2);
  CHECK(alive == 0);
  CHECK_FALSE(t.running());
}

TEST_CASE("a failure is reported, not thrown") {
  outcome end;
  running_task t;
  CHECK_NOTHROW(t.start(fails(), &outcome::note, &end));
  CHECK(end.ends == 1);
  CHECK(test::describe(end.failure).text == "no");
}

TEST_CASE("stopping destroys it where it is suspended, without a report") {
  outcome end;
  int alive = 0;
  gate g;
  running_task t;
  t.start(passes_deep(&g, &alive, 5), &outcome::note, &end);
  CHECK(alive == 6);
  t.stop();
  CHECK(alive == 0);
  CHECK_FALSE(t.running());
  t.stop();
  {
    running_task dropped;
    dropped.start(passes_deep(&g, &alive, 5), &outcome::note, &end);
    CHECK(alive == 6);
  }
  CHECK(alive == 0);
  CHECK(end.ends == 0);
}

TEST_CASE("a restart drops the running task") {
  outcome first, second;
  int alive = 0;
  gate a, b;
  running_task t;
  t.start(passes(&a, &alive), &outcome::note, &first);
  t.start(passes(&b, &alive), &outcome::note, &second);
  CHECK(alive == 1);
  b.open();
  CHECK(first.ends == 0);
  CHECK(second.ends == 1);
}

TEST_CASE("the callback may start another task") {
  struct chain {
    running_task first, second;
    outcome end;
  } c;
  c.first.start(
      nothing(),
      [](void* self, std::exception_ptr) noexcept {
        auto& all = *static_cast<chain*>(self);
        all.second.start(nothing(), &outcome::note, &all.end);
      },
      &c);
  CHECK(c.end.ends == 1);
}

namespace {

// At any depth of the stack: started, and dropped before it could end.
task<> start_and_stop_at(int depth, gate* g, outcome* end, int* alive) {
  if (depth > 0) {
    co_await start_and_stop_at(depth - 1, g, end, alive);
    co_return;
  }
  running_task t;
  t.start(passes(g, alive), &outcome::note, end);
  t.stop();
}

task<> start_and_open_at(int depth, gate* g, outcome* end, running_task* t, int* alive) {
  if (depth > 0) {
    co_await start_and_open_at(depth - 1, g, end, t, alive);
    co_return;
  }
  t->start(passes(g, alive), &outcome::note, end);
}

}  // namespace

TEST_CASE("deep in a chain of awaits it may be dropped before it has run at all") {
  for (int depth = 0; depth < 120; ++depth) {
    CAPTURE(depth);
    outcome outer, inner;
    int alive = 0;
    gate g;
    running_task t;
    t.start(start_and_stop_at(depth, &g, &inner, &alive), &outcome::note, &outer);
    REQUIRE(outer.ends == 1);
    REQUIRE(inner.ends == 0);
    REQUIRE(alive == 0);
  }
}

TEST_CASE("deep in a chain of awaits it still starts") {
  for (int depth = 0; depth < 120; ++depth) {
    CAPTURE(depth);
    outcome outer, inner;
    int alive = 0;
    gate g;
    running_task t, another;
    t.start(start_and_open_at(depth, &g, &inner, &another, &alive), &outcome::note, &outer);
    REQUIRE(outer.ends == 1);
    REQUIRE(alive == 1);
    REQUIRE(inner.ends == 0);
    g.open();
    REQUIRE(inner.ends == 1);
    REQUIRE(alive == 0);
  }
}
