// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "core/scheduling.hpp"
#include "support/child.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

task<> value_exception_and_void(communicator) {
  const std::thread::id loop_thread = std::this_thread::get_id();
  std::thread::id worker;
  const auto square = [&worker] {
    worker = std::this_thread::get_id();
    return std::make_unique<int>(49);
  };
  const std::unique_ptr<int> result = co_await compute(square);
  TUTTI_EXPECT(*result == 49);
  TUTTI_EXPECT(worker != loop_thread);
  TUTTI_EXPECT(std::this_thread::get_id() == loop_thread);

  int written = 0;
  co_await compute([&written] { written = 1; });  // captures by reference may be temporaries
  TUTTI_EXPECT(written == 1);

  std::string caught;
  try {
    co_await compute([]() -> int { throw std::out_of_range("in the pool"); });
  } catch (const std::out_of_range& e) {
    caught = e.what();
  }
  TUTTI_EXPECT(caught == "in the pool");
  TUTTI_EXPECT(std::this_thread::get_id() == loop_thread);
}

task<> references(communicator) {
  std::vector<int> numbers(3);
  const auto last = [&numbers]() -> int& { return numbers.back(); };
  int& found = co_await compute(last);
  TUTTI_EXPECT(&found == &numbers.back());
  found = 5;
  const auto copies = co_await when_all(compute(last), compute(last));
  TUTTI_EXPECT(std::get<0>(copies) == 5 && std::get<1>(copies) == 5);
}

task<> many_in_a_row(communicator) {
  int count = 0;
  const auto add = [&count] { ++count; };  // in sequence: no race
  for (int i = 0; i < 1000; ++i) co_await compute(add);
  TUTTI_EXPECT(count == 1000);
}

task<> many_at_once(communicator) {
  std::atomic<int> count{0};
  const auto add = [&count] { return ++count; };
  const auto all = co_await when_all(compute(add), compute(add), compute(add), compute(add));
  TUTTI_EXPECT(count == 4);
  const int sum = std::get<0>(all) + std::get<1>(all) + std::get<2>(all) + std::get<3>(all);
  TUTTI_EXPECT(sum == 10);
}

task<> own_the_function(communicator) {
  const auto held = std::make_shared<int>(5);
  const auto reads = [held] { return *held; };
  const int got = co_await compute(reads);
  TUTTI_EXPECT(got == 5);
  TUTTI_EXPECT(held.use_count() == 2);  // the one here and the named lambda's; compute has destroyed its own
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Address space for the stack of one thread more, not of two.
task<> with_room_for_one_thread(communicator) {
  pthread_attr_t usual;
  std::size_t stack = 0;
  TUTTI_EXPECT(::pthread_getattr_default_np(&usual) == 0 && ::pthread_attr_getstacksize(&usual, &stack) == 0);
  const rlimit limit{address_space() + stack + stack / 2, RLIM_INFINITY};
  TUTTI_EXPECT(::setrlimit(RLIMIT_AS, &limit) == 0);
  const auto work = [] { return 3; };
  const int got = co_await compute(work);
  TUTTI_EXPECT(got == 3);
}

}  // namespace

// The first case: a forked child has no thread of a pool that was made before.
TEST_CASE("a pool whose second thread cannot be made computes with one") {
  if (instrumented) TUTTI_SKIP("sanitizers need address space");
  if (base::usable_cores() < 2) TUTTI_SKIP("the pool has one thread for each core: one core");
  child limited([](const auto&) {
    ::alarm(std::chrono::duration_cast<std::chrono::seconds>(patience).count());
    run_local(1, with_room_for_one_thread);
    return 0;
  });
  CHECK(limited.end() == 0);
}

TEST_CASE("compute returns the value, the exception or nothing on the loop thread") {
  CHECK_NOTHROW(run_local(1, value_exception_and_void));
  CHECK_NOTHROW(run_local(2, value_exception_and_void));
}

TEST_CASE("compute returns a reference to the same object") { CHECK_NOTHROW(run_local(1, references)); }

TEST_CASE("computations in sequence and in parallel") {
  CHECK_NOTHROW(run_local(1, many_in_a_row));
  CHECK_NOTHROW(run_local(2, many_at_once));
  CHECK_NOTHROW(run_local(1, own_the_function));
}

namespace {

// The computation ends only after messages have arrived meanwhile.
struct progress {
  std::atomic<int> rounds{0};
};
progress moved[2];
constexpr int enough = 50;

task<> waits_in_the_pool(int rank) {
  const auto wait = [rank] {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (moved[rank].rounds < enough && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return moved[rank].rounds >= enough;
  };
  const bool met = co_await compute(wait);
  TUTTI_EXPECT(met);
}
task<> ping_pong(communicator world) {
  const int other = 1 - world.rank();
  for (int i = 0; i < enough; ++i) {
    int got = -1;
    request receiving = world.irecv(got, other);
    co_await world.send(i, other);
    co_await receiving;
    TUTTI_EXPECT(got == i);
    ++moved[world.rank()].rounds;
  }
}
task<> both(communicator world) { co_await when_all(waits_in_the_pool(world.rank()), ping_pong(world)); }

}  // namespace

TEST_CASE("messages arrive while the processor computes") {
  for (progress& p : moved) p.rounds = 0;
  CHECK_NOTHROW(run_local(2, both));
}

TEST_CASE("without a runtime on this thread it is an error that says so") {
  const auto body = []() -> task<int> {
    const int never = co_await compute([] { return 1; });
    co_return never;
  };
  asio::io_context context;
  const failure wrong = failure_of([&] { run_task(context, body()); });
  CHECK(wrong.code == errc::wrong_thread);
  CHECK(wrong.says("tutti::compute"));
}

namespace {

struct state {
  std::atomic<bool> begun{false}, go{false}, ended{false};
};
task<> long_one(state* s) {
  const auto work = [s] {
    s->begun = true;
    while (!s->go) std::this_thread::yield();
    s->ended = true;
  };
  co_await compute(work);
}
task<> quick_one(int* out) {
  const auto work = [out] { *out += 1; };
  co_await compute(work);
}
void ignore_end(void*, std::exception_ptr) noexcept {}

}  // namespace

TEST_CASE("dropping a task in a computation waits for the function only") {
  asio::io_context context(1);
  core::loop loop(context);
  loop.bind_to_this_thread();
  state s;
  core::running_task t;
  t.start(long_one(&s), &ignore_end, nullptr);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!s.begun && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  REQUIRE(s.begun);
  s.go = true;
  t.stop();
  CHECK(s.ended);
  CHECK_NOTHROW(context.run_for(patience));  // the late message to the loop has no recipient
  CHECK(context.stopped());
}

TEST_CASE("after that the io_context may be destroyed at once") {
  int runs = 0;
  for (int i = 0; i < 3000; ++i) {
    asio::io_context context(1);
    core::loop loop(context);
    loop.bind_to_this_thread();
    core::running_task t;
    t.start(quick_one(&runs), &ignore_end, nullptr);
    if (i % 3 == 0) context.poll();
  }
  CHECK(runs == 3000);
}
