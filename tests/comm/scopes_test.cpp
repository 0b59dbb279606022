// SPDX-License-Identifier: Apache-2.0
// Ending operations early: when_any, with_timeout, with_deadline, as_result, abort.
#include "support/default_timeout.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <variant>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

constexpr auto never = 1h;

task<> sleep(communicator world, std::chrono::milliseconds how_long) {
  asio::steady_timer timer(world.get_executor(), how_long);
  co_await timer.async_wait(asio::deferred);
}

task<int> receive_deep(communicator world, int depth) {
  if (depth > 0) {
    const int got = co_await receive_deep(world, depth - 1);
    co_return got;
  }
  int x = 0;
  co_await world.recv(x, any_source);
  co_return x;
}

// Ranks have 100 ms to answer a query, which may be too short on a busy machine. Returns a run in which the
// failure of `rank` contains `text`, or else the last run.
template <class F>
std::vector<failure> failures_of_answered(int rank, const char* text, F main) {
  std::vector<failure> failures;
  for (int run = 0; run < 10; ++run) {
    failures = failures_of(3, over("shm"), main);
    if (failures[static_cast<std::size_t>(rank)].says(text)) break;
  }
  return failures;
}

}  // namespace

TEST_CASE("with_timeout gives the result of an operation that completes in time") {
  run_local(2, [](communicator world) -> task<> {
    if (world.rank() == 0) {
      const int x = 42;
      co_await with_timeout(world.send(x, 1), never);
    } else {
      int x = 0;
      const status st = co_await with_timeout(world.recv(x, 0), never);
      TUTTI_EXPECT(x == 42);
      TUTTI_EXPECT(st.source == 0);
    }
  });
}

TEST_CASE("with_timeout ends a receive, which loses no message, and the error names it") {
  run_local(2, [](communicator world) -> task<> {
    if (world.rank() == 1) {
      int x = 0;
      const failure f = co_await failure_in(with_timeout(world.recv(x, 0, 7), 5ms));
      TUTTI_EXPECT(f.code == errc::timed_out);
      TUTTI_EXPECT(f.says("recv"));
      TUTTI_EXPECT(f.says("5 ms"));
    }
    co_await world.barrier();
    if (world.rank() == 0) {
      const int x = 5;
      co_await world.send(x, 1, 7);
    } else {
      int x = 0;
      co_await world.recv(x, 0, 7);
      TUTTI_EXPECT(x == 5);
    }
  });
}

TEST_CASE("a deadline applies to operations deep inside tasks") {
  run_local(2, [](communicator world) -> task<> {
    if (world.rank() == 1) {
      const failure f = co_await failure_in(with_timeout(receive_deep(world, 20), 5ms));
      TUTTI_EXPECT(f.code == errc::timed_out);
      const failure t = co_await failure_in(with_timeout(sleep(world, never), 5ms));
      TUTTI_EXPECT(t.code == errc::timed_out);
    }
    co_await world.barrier();
  });
}

TEST_CASE("the nearest deadline counts; a longer inner one does not extend it") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0;
    request never_sent = world.irecv(x, 0);
    const failure f = co_await failure_in(with_timeout(with_timeout(sleep(world, never), never), 5ms));
    TUTTI_EXPECT(f.code == errc::timed_out);
    TUTTI_EXPECT(f.says("5 ms"));
    const failure r = co_await failure_in(with_timeout(failure_awaiting(&never_sent), 5ms));
    TUTTI_EXPECT(r.code == errc::success);  // failure_awaiting returned the error as its result
    TUTTI_EXPECT(!never_sent);
  });
}

TEST_CASE("an operation's own deadline replaces the communicator's timeout") {
  run_local(2, over("shm"), [](communicator world) -> task<> {
    if (world.rank() == 1) {
      set_default_timeout(world, 50ms);
      int x = 0;
      co_await with_timeout(world.recv(x, 0), 20s);
      TUTTI_EXPECT(x == 3);
    } else {
      co_await sleep(world, 150ms);
      const int x = 3;
      co_await world.send(x, 1);
    }
  });
}

task<> never_received(communicator world) {
  int x = 0;
  co_await world.recv(x, 0);
}

TEST_CASE("a scope that was joined within a deadline has the communicator's timeout again") {
  run_local(1, over("shm", 50ms), [](communicator world) -> task<> {
    scope work;
    work.spawn(sleep(world, 1ms));
    co_await with_timeout(work.join(), 20s);
    work.spawn(never_received(world));
    const failure f = co_await failure_in(work.join());
    TUTTI_EXPECT(f.code == errc::timed_out);
  });
}

TEST_CASE("a collective that times out fails on all ranks with that reason") {
  const char* const answer = "which has called none on world yet";
  const auto failures = failures_of_answered(1, answer, [](communicator world) -> task<> {
    if (world.rank() == 2) {
      int x = 0;
      co_await world.recv(x, 0);  // instead of the barrier
    }
    co_await with_timeout(world.barrier(), world.rank() == 0 ? 20ms : 20000ms);
  });
  CHECK(failures[0].code == errc::timed_out);
  CHECK(failures[1].code == errc::timed_out);
  CHECK(failures[2].code == errc::timed_out);
  CHECK(failures[1].says("rank 0"));
  CHECK(failures[1].says("not called by rank 2"));
  CHECK(failures[1].says(answer));
}

TEST_CASE("a collective that times out names ranks in other operations, and ranks that do not answer") {
  const char* const silence = "no answer within 100 ms from rank 2";
  const auto failures = failures_of_answered(0, silence, [](communicator world) -> task<> {
    co_await world.barrier();
    if (world.rank() == 1) {
      int x = 0;
      co_await world.recv(x, 0);
    }
    if (world.rank() == 2) {
      std::this_thread::sleep_for(300ms);  // keeps the loop from answering
      int x = 0;
      co_await world.recv(x, 0);
    }
    float x = 0;
    if (world.rank() == 0) co_await with_timeout(world.all_reduce(x, sum), 20ms);
  });
  CHECK(failures[0].code == errc::timed_out);
  CHECK(failures[0].says("all_reduce #2"));
  CHECK(failures[0].says(silence));
  CHECK(failures[0].says("of which the last on world was #1, barrier()"));
  CHECK(failures[1].code == errc::timed_out);
}

TEST_CASE("a receive that times out reports a message with another tag") {
  run_local(2, [](communicator world) -> task<> {
    const int x = 4;
    if (world.rank() == 0) co_await world.send(x, 1, 8);
    co_await world.barrier();
    if (world.rank() == 1) {
      int y = 0;
      const failure f = co_await failure_in(with_timeout(world.recv(y, 0, 9), 2ms));
      TUTTI_EXPECT(f.code == errc::timed_out);
      TUTTI_EXPECT(f.says("one of 4 bytes from rank 0"));
      TUTTI_EXPECT(f.says("with tag 8"));
      co_await world.recv(y, 0, 8);
    }
    co_await world.barrier();
  });
}

TEST_CASE("when_any: the first ends the others") {
  run_local(2, [](communicator world) -> task<> {
    if (world.rank() == 0) {
      int x = 0;
      int y = 0;
      auto r = co_await when_any(world.recv(x, 1, 1), world.recv(y, 1, 2), sleep(world, never));
      TUTTI_EXPECT(r.index() == 1);
      TUTTI_EXPECT(std::get<1>(r).tag == 2);
      TUTTI_EXPECT(r.late<0>() == nullptr);
      const int go = 1;
      co_await world.send(go, 1);
      co_await world.recv(x, 1, 1);
      TUTTI_EXPECT(x == 11);
    } else {
      const int second = 22;
      co_await world.send(second, 0, 2);
      int go = 0;
      co_await world.recv(go, 0);
      const int first = 11;
      co_await world.send(first, 0, 1);
    }
  });
}

task<int> taker(channel<int>* ch) {
  const auto value = co_await ch->receive();
  co_return *value;
}
task<int> giver(communicator world, channel<int>* ch) {
  co_await ch->send(7);
  co_await sleep(world, never);
  co_return 1;
}

TEST_CASE("when_any: the start of the second may end the first, which then ends the second") {
  run_local(1, [](communicator world) -> task<> {
    channel<int> ch(0);
    const auto r = co_await with_timeout(when_any(taker(&ch), giver(world, &ch)), 20s);
    TUTTI_EXPECT(r.index() == 0);
  });
}

TEST_CASE("when_any with a request, and with a failure first") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0;
    request never_sent = world.irecv(x, 0);
    const auto r = co_await when_any(never_sent, sleep(world, 1ms));
    TUTTI_EXPECT(r.index() == 1);
    TUTTI_EXPECT(never_sent.done());
    const failure f = co_await failure_in(when_any(world.send(x, 5), sleep(world, never)));
    TUTTI_EXPECT(f.code == errc::invalid_argument);
  });
}

TEST_CASE("when_any inside when_all inside with_timeout: the deadline ends all of them") {
  run_local(1, [](communicator world) -> task<> {
    int a = 0;
    int b = 0;
    const failure f = co_await failure_in(
        with_timeout(when_all(when_any(world.recv(a, 0, 1), sleep(world, never)), world.recv(b, 0, 2)), 5ms));
    TUTTI_EXPECT(f.code == errc::timed_out);
  });
}

TEST_CASE("as_result gives failures as values") {
  run_local(2, [](communicator world) -> task<> {
    int x = world.rank();
    const result<> wrong = co_await as_result(world.send(x, 7));
    TUTTI_EXPECT(!wrong);
    TUTTI_EXPECT(wrong.error == errc::invalid_argument);
    TUTTI_EXPECT(wrong.message.find("7") != std::string::npos);
    const result<> good = co_await as_result(world.barrier());
    TUTTI_EXPECT(bool(good));
    const result<status> late = co_await as_result(with_timeout(world.recv(x, any_source, 3), 2ms));
    TUTTI_EXPECT(late.error == errc::timed_out);
    const result<> timer = co_await as_result(with_timeout(sleep(world, never), 2ms));
    TUTTI_EXPECT(timer.error == errc::timed_out);
    co_await world.barrier();
  });
}

TEST_CASE("abort fails the communicator everywhere, with its reason") {
  const auto failures = failures_of(3, over("shm"), [](communicator world) -> task<> {
    communicator part = co_await world.duplicate();
    if (world.rank() == 1) {
      part.abort();
      int x = 0;
      const failure nobody = co_await failure_in(part.send(x, 99));
      TUTTI_EXPECT(nobody.says("to rank 99"));
    }
    const failure f = co_await failure_in(part.barrier());
    TUTTI_EXPECT(f.code == (world.rank() == 1 ? errc::communicator_failed : errc::cancelled));
    TUTTI_EXPECT(f.says("aborted by rank 1"));
    co_await world.barrier();
  });
  for (const failure& f : failures) CHECK(f.text == "");
}

namespace {

task<> produce(channel<int>* to) {
  const std::vector<int> local(100, 1);
  for (std::size_t i = 0; i < local.size(); ++i) {
    co_await sleep_for(1ms);
    co_await to->send(local[i]);
  }
}
task<> cancels(scope* of) {
  const std::vector<int> local(100, 1);
  co_await sleep_for(1ms);
  of->cancel();
  TUTTI_EXPECT(local.back() == 1);
  co_await sleep_for(never);
}
task<> sleeps_for_ever() { co_await sleep_for(never); }

// Their scopes destroy the task that has just resumed them.
task<> consume_one() {
  channel<int> values(4);
  scope work;
  work.spawn(produce(&values));
  const auto value = co_await values.receive();
  TUTTI_EXPECT(value == 1);
}
task<> is_cancelled() {
  scope background, work;
  work.spawn(sleeps_for_ever());
  background.spawn(cancels(&work));
  const failure f = co_await failure_in(work.join());
  TUTTI_EXPECT(f.code == errc::cancelled);
}

}  // namespace

TEST_CASE("a coroutine may destroy the task that has resumed it") {
  run_local(1, [](communicator) -> task<> {
    co_await consume_one();
    co_await is_cancelled();
    co_await sleep_for(1ms);
  });
}
