// SPDX-License-Identifier: Apache-2.0
// How coroutines are resumed, below task: bounded nesting, the deferred list, and recycled frames.
#include "core/running_task.hpp"

#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <tutti/detail/flow.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using detail::flow;
using detail::this_flow;

namespace {

// A coroutine without a parent, resumed explicitly.
struct step {
  struct promise_type {
    step get_return_object() noexcept {
      return step{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
  explicit step(std::coroutine_handle<promise_type> h) noexcept : handle(h) {}
  step(step&& other) noexcept : handle(std::exchange(other.handle, {})) {}
  ~step() {
    if (handle) handle.destroy();
  }
  std::coroutine_handle<promise_type> handle;
};

struct record {
  std::vector<int> order;
  unsigned deepest = 0;
  std::uintptr_t lowest = UINTPTR_MAX;  // addresses of locals: the depth of the stack
  std::uintptr_t highest = 0;
};

void note(record* r, int name) {
  volatile char here = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(&here);
  r->lowest = std::min(r->lowest, address);
  r->highest = std::max(r->highest, address);
  r->deepest = std::max(r->deepest, this_flow().depth);
  r->order.push_back(name);
}

// Each resumes the next before it ends.
step domino(record* r, int name, std::vector<step>* all) {
  note(r, name);
  const auto next = static_cast<std::size_t>(name) + 1;
  if (next < all->size()) detail::resume_bounded((*all)[next].handle);
  co_return;
}

}  // namespace

TEST_CASE("a chain of resumptions nests up to the limit, however long it is") {
  for (const int length : {1, 2, 47, 48, 49, 50, 97, 20'000}) {
    CAPTURE(length);
    record r;
    std::vector<step> all;
    all.reserve(static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i) all.push_back(domino(&r, i, &all));
    detail::resume_bounded(all[0].handle);
    REQUIRE(r.order.size() == static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i) REQUIRE(r.order[static_cast<std::size_t>(i)] == i);
    for (const step& s : all) REQUIRE(s.handle.done());
    CHECK(r.deepest <= flow::depth_limit);
    CHECK(r.highest - r.lowest < 1 << 18);
    CHECK(this_flow().depth == 0);
    CHECK(this_flow().starting == nullptr);
  }
}

namespace {

step fan(record* r, std::vector<step>* all) {
  note(r, -1);
  for (step& s : *all) detail::resume_bounded(s.handle);
  co_return;
}
step leaf(record* r, int name) {
  note(r, name);
  co_return;
}

}  // namespace

TEST_CASE("a resumption at the limit runs once, when the stack has unwound") {
  record r;
  std::vector<step> leaves;
  for (int i = 0; i < 100; ++i) leaves.push_back(leaf(&r, i));
  step root = fan(&r, &leaves);
  // As if under many nested calls.
  this_flow().depth = flow::depth_limit;
  detail::resume_bounded(root.handle);
  CHECK(r.order.empty());
  this_flow().depth = 0;
  step outermost = leaf(&r, 1000);
  detail::resume_bounded(outermost.handle);
  REQUIRE(r.order.size() == 102);
  CHECK(r.order[0] == 1000);
  CHECK(std::set<int>(r.order.begin(), r.order.end()).size() == 102);
  CHECK(this_flow().depth == 0);
}

namespace {

task<int> leaf_task(int value) { co_return value; }

// Finishes at once or suspends, like a child that its parent runs.
struct pause {
  std::coroutine_handle<>* where;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) const noexcept { *where = h; }
  void await_resume() const noexcept {}
};
task<int> waits(std::coroutine_handle<>* where) {
  co_await pause{where};
  co_return 5;
}
task<> parent(std::coroutine_handle<>* where, int* sum) {
  const int a = co_await leaf_task(1);
  *sum += a;
  const int b = co_await waits(where);
  *sum += b;
  const int c = co_await leaf_task(10);
  *sum += c;
}

void ignore_end(void*, std::exception_ptr) noexcept {}

}  // namespace

TEST_CASE("a parent continues by itself after a finished child; a suspended child resumes it") {
  std::coroutine_handle<> waiting;
  int total = 0;
  core::running_task t;
  t.start(parent(&waiting, &total), &ignore_end, nullptr);
  CHECK(total == 1);
  CHECK(this_flow().depth == 0);
  CHECK(this_flow().starting == nullptr);
  detail::resume_bounded(waiting);
  CHECK(total == 16);
  CHECK_FALSE(t.running());
}

TEST_CASE("each thread has a flow of its own") {
  this_flow().depth = flow::depth_limit;
  unsigned elsewhere = 1;
  int total = 0;
  std::thread([&] {
    elsewhere = this_flow().depth;
    std::coroutine_handle<> waiting;
    core::running_task t;
    t.start(parent(&waiting, &total), &ignore_end, nullptr);
    waiting.resume();
  }).join();
  this_flow().depth = 0;
  CHECK(elsewhere == 0);
  CHECK(total == 16);
}

namespace {

bool frames_are_recycled() {
  void* first = detail::allocate_frame(200);
  detail::release_frame(first, 200);
  void* second = detail::allocate_frame(200);
  const bool same = first == second;
  detail::release_frame(second, 200);
  return same;
}

}  // namespace

TEST_CASE("a freed frame is reused for the next one of its size") {
  if (!frames_are_recycled())
    TUTTI_SKIP("AddressSanitizer: frames are not recycled, so that it sees their use after free");
  void* a = detail::allocate_frame(1000);
  void* b = detail::allocate_frame(1000);
  CHECK(a != b);
  detail::release_frame(a, 1000);
  detail::release_frame(b, 1000);
  CHECK(detail::allocate_frame(990) == b);  // the same size class of 64 bytes
  CHECK(detail::allocate_frame(1000) == a);
  void* other = detail::allocate_frame(1100);
  CHECK(other != a);
  for (void* p : {a, b}) detail::release_frame(p, 1000);
  detail::release_frame(other, 1100);
}

TEST_CASE("frames of every size are usable from end to end, and do not overlap") {
  struct block {
    void* at;
    std::size_t bytes;
  };
  std::vector<block> blocks;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t bytes = 1; bytes <= 6000; bytes += 37) {
      const block b{detail::allocate_frame(bytes), bytes};
      REQUIRE(reinterpret_cast<std::uintptr_t>(b.at) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0);
      std::memset(b.at, static_cast<int>(bytes % 251), bytes);
      blocks.push_back(b);
    }
    for (const block& b : blocks)
      for (std::size_t i = 0; i < b.bytes; ++i)
        REQUIRE(static_cast<unsigned char*>(b.at)[i] == static_cast<unsigned char>(b.bytes % 251));
    for (const block& b : blocks) detail::release_frame(b.at, b.bytes);
    blocks.clear();
  }
}

TEST_CASE("a burst of frames returns memory, and frames may be destroyed on another thread") {
  std::vector<void*> burst;
  for (int i = 0; i < 10'000; ++i) burst.push_back(detail::allocate_frame(128));
  for (void* p : burst) detail::release_frame(p, 128);
  void* wanderer = detail::allocate_frame(128);
  std::thread([wanderer] {
    detail::release_frame(wanderer, 128);
  }).join();  // that thread frees its lists as it ends
}

TEST_CASE("the list of deferred coroutines stays short while it is never empty") {
  detail::deferred_list list;
  list.handles = {std::noop_coroutine(), std::noop_coroutine()};
  for (int i = 0; i < 10'000; ++i) {
    list.take();
    list.handles.push_back(std::noop_coroutine());
  }
  CHECK(!list.empty());
  CHECK(list.handles.capacity() < 200);
}
