// SPDX-License-Identifier: Apache-2.0
// The communicator as an object: its properties, and invalid calls.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

void expect_invalid(const failure& f, const char* part) {
  if (f.code != errc::invalid_argument || !f.says(part))
    throw std::runtime_error(std::string("wanted an invalid argument that says '") + part +
                             "', got: " + f.text);
}

task<> bad_arguments(communicator world) {
  std::vector<int> data(10);
  std::vector<int> shorter(9);
  const std::span<int> nowhere(static_cast<int*>(nullptr), 4);
  const std::span<int> nothing;
  const int n = world.size();
  expect_invalid(co_await failure_in(world.send(data, n)), "ranks are 0 to 1");
  expect_invalid(co_await failure_in(world.send(data, -1)), "rank -1 is outside world");
  expect_invalid(co_await failure_in(world.send(data, 1'000'000)), "rank 1000000 is outside world");
  expect_invalid(co_await failure_in(world.send(data, 0, -1)), "tag -1 is negative");
  expect_invalid(co_await failure_in(world.send(nowhere, 0)), "null pointer");
  expect_invalid(co_await failure_in(world.recv(data, n)), "ranks are 0 to 1");
  expect_invalid(co_await failure_in(world.recv(data, -2)), "rank -2");
  expect_invalid(co_await failure_in(world.recv(data, 0, -2)), "tag -2");
  expect_invalid(co_await failure_in(world.recv(nowhere, 0)), "null pointer");
  expect_invalid(co_await failure_in(world.broadcast(data, n)), "root 2 is outside");
  expect_invalid(co_await failure_in(world.broadcast(data, -1)), "root -1 is outside");
  expect_invalid(co_await failure_in(world.broadcast(nowhere, 0)), "null pointer");
  expect_invalid(co_await failure_in(world.all_reduce(nowhere, sum)), "null pointer");
  expect_invalid(co_await failure_in(world.all_reduce(data, nowhere, sum)), "10 elements");
  expect_invalid(co_await failure_in(world.all_reduce(data, shorter, sum)), "has 10 elements, the result 9");
  request sending = world.isend(data, n);
  TUTTI_EXPECT(sending.done());
  expect_invalid(co_await failure_awaiting(&sending), "rank 2 is outside world");
  TUTTI_EXPECT(!sending);
  expect_invalid(co_await failure_awaiting(&sending), "awaited twice");
  // None of these calls took part in the order of collectives: both ranks are still at the same place.
  co_await world.broadcast(nothing, 0);
  co_await world.all_reduce(nothing, sum);
  int x = world.rank();
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == 1);
  request empty_send = world.isend(nothing, 1 - world.rank());
  const status st = co_await world.recv(nothing, 1 - world.rank());
  co_await empty_send;
  TUTTI_EXPECT(st.bytes == 0);
}

task<> what_it_says_of_itself(communicator world) {
  TUTTI_EXPECT(world);
  TUTTI_EXPECT(world.size() == 3);
  TUTTI_EXPECT(world.rank() >= 0);
  TUTTI_EXPECT(world.rank() < 3);
  TUTTI_EXPECT(world.name() == "world");
  const communicator copy = world;
  TUTTI_EXPECT(copy == world);
  TUTTI_EXPECT(!(communicator() == world));
  int x = 1;
  co_await copy.all_reduce(x, sum);  // copies share the group and its order of collectives
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == 9);
}

task<> member_of_nothing() {
  const communicator none;
  int x = 0;
  for (int kind = 0; kind < 4; ++kind) {
    failure f;
    if (kind == 0) f = co_await failure_in(none.send(x, 0));
    if (kind == 1) f = co_await failure_in(none.recv(x, 0));
    if (kind == 2) f = co_await failure_in(none.barrier());
    if (kind == 3) f = co_await failure_in(none.all_reduce(x, sum));
    TUTTI_EXPECT(f.code == errc::invalid_argument);
    TUTTI_EXPECT(f.says("empty"));
  }
}

task<> from_another_thread(communicator world) {
  failure eager, failed, suspected;
  std::error_code lazy;
  int x = 0;
  std::thread([&] {
    failed = failure_of([&] { static_cast<void>(world.failed_ranks()); });
    suspected = failure_of([&] { static_cast<void>(world.suspected_ranks()); });
    eager = failure_of([&] { request r = world.isend(x, 0); });
    // Awaited on the other thread: the operation fails at once.
    task<failure> t = failure_in(world.barrier());
    std::optional<failure> result;
    core::running_task running;
    struct outcome {
      bool done = false;
    } end;
    running.start(
        keep_result(std::move(t), &result),
        [](void* o, std::exception_ptr) noexcept { static_cast<outcome*>(o)->done = true; }, &end);
    if (end.done && result) lazy = result->code;
  }).join();
  TUTTI_EXPECT(eager.code == errc::wrong_thread);
  TUTTI_EXPECT(eager.says("boost::asio::post"));
  TUTTI_EXPECT(lazy == errc::wrong_thread);
  TUTTI_EXPECT(failed.code == errc::wrong_thread);
  TUTTI_EXPECT(suspected.code == errc::wrong_thread);
  co_await world.barrier();  // the communicator still works
}

task<int> join_alone(runtime* rt, std::optional<communicator>* kept) {
  communicator world = co_await init(*rt);
  kept->emplace(world);
  int x = 5;
  co_await world.all_reduce(x, sum);
  co_return x;
}

}  // namespace

TEST_CASE("communicator: invalid calls") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), bad_arguments));
  }
}
TEST_CASE("communicator: its properties") { CHECK_NOTHROW(run_local(3, what_it_says_of_itself)); }
TEST_CASE("communicator: an empty communicator") {
  const communicator none;
  CHECK_FALSE(none);
  CHECK(none.rank() == -1);
  CHECK(none.size() == 0);
  CHECK_FALSE(none.name().empty());
  boost::asio::io_context context;
  CHECK_NOTHROW(run_task(context, member_of_nothing()));
}
TEST_CASE("communicator: use from another thread is an error with its cure") {
  CHECK_NOTHROW(run_local(2, from_another_thread));
}

TEST_CASE("communicator: the last handle may be destroyed on another thread while the runtime ends") {
  for (int round = 0; round < 100; ++round) {
    std::optional<communicator> kept;
    auto rt = std::make_unique<runtime>();
    CHECK(rt->run(join_alone(rt.get(), &kept)) == 5);
    std::atomic<bool> begun = false;
    std::thread other([&] {
      begun = true;
      kept.reset();
    });
    while (!begun) std::this_thread::yield();
    rt.reset();
    other.join();
  }
}

TEST_CASE("communicator: a handle that outlives its runtime reports it") {
  std::optional<communicator> kept;
  {
    runtime rt;
    CHECK(rt.run(join_alone(&rt, &kept)) == 5);
    CHECK(kept->size() == 1);
  }
  boost::asio::io_context context;
  int x = 0;
  CHECK(run_task(context, failure_in(kept->barrier())).code == errc::shut_down);
  CHECK(run_task(context, failure_in(kept->send(x, 0))).code == errc::shut_down);
  request sending = kept->isend(x, 0);
  CHECK(run_task(context, failure_awaiting(&sending)).code == errc::shut_down);
  CHECK(kept->rank() == 0);
}
