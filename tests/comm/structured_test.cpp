// SPDX-License-Identifier: Apache-2.0
// Structured concurrency over communication: scope, channel, generator, messages, all_reduce_chunks.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

task<> sleep(communicator world, std::chrono::milliseconds how_long) {
  asio::steady_timer timer(world.get_executor(), how_long);
  co_await timer.async_wait(asio::deferred);
}

task<> receive_into(communicator world, int* x, int source, int tag, int* ended) {
  try {
    co_await world.recv(*x, source, tag);
  } catch (const error& e) {
    *ended += 100;
    throw;
  }
  ++*ended;
}
task<> fail_soon(communicator world) {
  co_await sleep(world, 1ms);
  throw std::runtime_error("this one fails");
}

task<> join_all(scope* of) { co_await of->join(); }

task<> produce(channel<int>* out, int first, int count) {
  for (int i = 0; i < count; ++i) {
    const bool taken = co_await out->send(first + i);
    TUTTI_EXPECT(taken);
  }
}
task<> produce_then_close(channel<int>* out, int count) {
  scope both;
  both.spawn(produce(out, 0, count));
  both.spawn(produce(out, 1000, count));
  co_await both.join();
  out->close();
}
task<> consume(channel<int>* in, long* sum, int* n) {
  for (;;) {
    const std::optional<int> x = co_await in->receive();
    if (!x) co_return;
    *sum += *x;
    ++*n;
  }
}

generator<int> count_to(communicator world, int end) {
  for (int i = 0; i < end; ++i) {
    if (i % 3 == 0) co_await sleep(world, 0ms);
    co_yield i;
  }
}
generator<int> receive_all(communicator world) {
  for (int x = 0;;) {
    co_await world.recv(x, 0);
    co_yield x;
  }
}
task<> read_one(generator<int>* from) {
  const std::optional<int> one = co_await from->next();
  TUTTI_EXPECT(one.has_value());
}
generator<int> fails_after_one() {
  co_yield 1;
  throw std::runtime_error("no second");
}

}  // namespace

TEST_CASE("a scope's tasks run at once and are joined") {
  run_local(3, [](communicator world) -> task<> {
    int ended = 0;
    if (world.rank() == 0) {
      int x[2] = {};
      scope work;
      work.spawn(receive_into(world, &x[0], 1, 0, &ended));
      work.spawn(receive_into(world, &x[1], 2, 0, &ended));
      TUTTI_EXPECT(work.running() == 2);
      co_await work.join();
      TUTTI_EXPECT(ended == 2);
      TUTTI_EXPECT(x[0] == 1 && x[1] == 2);
    } else {
      const int x = world.rank();
      co_await world.send(x, 0);
    }
  });
}

TEST_CASE("the first failure in a scope ends the rest, and join throws it") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0;
    int ended = 0;
    std::string text;
    scope work;
    work.spawn(receive_into(world, &x, 0, 0, &ended));
    work.spawn(fail_soon(world));
    try {
      co_await work.join();
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    TUTTI_EXPECT(text == "this one fails");
    TUTTI_EXPECT(ended == 100);
  });
}

TEST_CASE("a scope is ended by an outer deadline, and by its destructor") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0;
    int ended = 0;
    scope work;
    work.spawn(receive_into(world, &x, 0, 0, &ended));
    const failure f = co_await failure_in(with_timeout(work.join(), 2ms));
    TUTTI_EXPECT(f.code == errc::timed_out);
    TUTTI_EXPECT(ended == 100);
    {
      scope dropped;
      dropped.spawn(receive_into(world, &x, 0, 0, &ended));
      TUTTI_EXPECT(dropped.running() == 1);
    }
    TUTTI_EXPECT(ended == 100);
    co_await world.send(x, 0);  // none of those took the message
    co_await world.recv(x, 0);
  });
}

TEST_CASE("a task that joins a scope may be destroyed, and the scope may be destroyed before it") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0, ended = 0;
    std::optional<scope> inner(std::in_place);
    inner->spawn(receive_into(world, &x, 0, 0, &ended));
    {
      scope outer;
      outer.spawn(join_all(&*inner));
    }
    co_await world.send(x, 0);
    co_await inner->join();  // its task ends, and resumes this coroutine only
    TUTTI_EXPECT(inner->running() == 0);

    inner->spawn(receive_into(world, &x, 0, 0, &ended));
    scope outer;
    outer.spawn(join_all(&*inner));
    inner.reset();
    TUTTI_EXPECT(outer.running() == 1);
  });
}

TEST_CASE("a second join is an error, and the first goes on") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0, ended = 0;
    const int sent = 1;
    scope work, first;
    work.spawn(receive_into(world, &x, 0, 0, &ended));
    first.spawn(join_all(&work));
    const failure f = co_await failure_in(work.join());
    TUTTI_EXPECT(f.code == errc::invalid_argument);
    TUTTI_EXPECT(f.says("joined twice"));
    co_await world.send(sent, 0);
    co_await first.join();
    TUTTI_EXPECT(ended == 1);
  });
}

TEST_CASE("channels deliver every value once, in order, at any capacity") {
  for (const std::size_t capacity : {0U, 1U, 7U}) {
    run_local(1, [capacity](communicator world) -> task<> {
      channel<int> values(capacity);
      long totals[2] = {};
      int n[2] = {};
      co_await sleep(world, 0ms);
      co_await when_all(produce_then_close(&values, 50), consume(&values, &totals[0], &n[0]),
                        consume(&values, &totals[1], &n[1]));
      TUTTI_EXPECT(n[0] + n[1] == 100);
      TUTTI_EXPECT(totals[0] + totals[1] == 2 * (49 * 50 / 2) + 50 * 1000);
      const bool late = co_await values.send(1);
      TUTTI_EXPECT(!late);
    });
  }
}

TEST_CASE("a wait at a channel ends with its scope") {
  run_local(1, [](communicator) -> task<> {
    channel<int> values(0);
    const failure r = co_await failure_in(with_timeout(values.receive(), 2ms));
    TUTTI_EXPECT(r.code == errc::timed_out);
    const failure s = co_await failure_in(with_timeout(values.send(1), 2ms));
    TUTTI_EXPECT(s.code == errc::timed_out);
    TUTTI_EXPECT(!values.try_send(1));
  });
}

TEST_CASE("a generator yields, awaits between, ends, and throws") {
  run_local(1, [](communicator world) -> task<> {
    auto numbers = count_to(world, 10);
    int total = 0;
    for (;;) {
      const std::optional<int> one = co_await numbers.next();
      if (!one) break;
      total += *one;
    }
    TUTTI_EXPECT(total == 45);
    const std::optional<int> after = co_await numbers.next();
    TUTTI_EXPECT(!after);
    auto broken = fails_after_one();
    const std::optional<int> first = co_await broken.next();
    TUTTI_EXPECT(first == 1);
    const failure f = co_await failure_in(broken.next());
    TUTTI_EXPECT(f.says("no second"));
  });
}

TEST_CASE("a generator has one reader at a time") {
  run_local(1, [](communicator world) -> task<> {
    auto numbers = receive_all(world);
    scope readers;
    readers.spawn(read_one(&numbers));
    const failure f = co_await failure_in(numbers.next());
    TUTTI_EXPECT(f.code == errc::invalid_argument && f.says("another coroutine waits"));
    const int x = 7;
    co_await world.send(x, 0);  // the first is served
    co_await readers.join();
  });
}

TEST_CASE("a generator ends with a coroutine that awaits it, and may end before that") {
  run_local(1, [](communicator world) -> task<> {
    auto numbers = receive_all(world);
    {
      scope readers;
      readers.spawn(read_one(&numbers));
    }
    int x = 7;
    co_await world.send(x, 0);  // the body is gone: it takes no message
    auto moved = std::move(numbers);
    const failure f = co_await failure_in(moved.next());
    TUTTI_EXPECT(f.code == errc::cancelled);
    co_await world.recv(x, 0);

    std::optional<generator<int>> goes_first(receive_all(world));
    scope readers;
    readers.spawn(read_one(&*goes_first));
    goes_first.reset();
    TUTTI_EXPECT(readers.running() == 1);
  });
}

TEST_CASE("messages arrive in order from every rank, and a timeout loses none") {
  run_local(4, [](communicator world) -> task<> {
    constexpr int each = 30;
    if (world.rank() == 0) {
      auto all = messages<int>(world);
      std::vector<int> next(4, 0);
      for (int i = 0; i < 3 * each;) {
        std::optional<received<int>> m;
        try {
          m = co_await with_timeout(all.next(), std::chrono::microseconds(i % 7 == 0 ? 1 : 5000000));
        } catch (const error& e) {
          TUTTI_EXPECT(e.code() == errc::timed_out);
          all = messages<int>(world);  // its body has ended with the exception
          continue;
        }
        TUTTI_EXPECT(m->data.size() ==
                     static_cast<std::size_t>(next[static_cast<std::size_t>(m->from.source)]++));
        ++i;
      }
    } else {
      for (int i = 0; i < each; ++i) {
        const std::vector<int> data(static_cast<std::size_t>(i), i);
        co_await world.send(data, 0);
      }
    }
    co_await world.barrier();
  });
}

TEST_CASE("a message of another type is an error, and can still be received") {
  run_local(2, [](communicator world) -> task<> {
    const std::vector<float> sent = {1, 2, 3};
    if (world.rank() == 1) {
      co_await world.send(sent, 0);
      co_return;
    }
    auto all = messages<double>(world);
    const auto refused = co_await as_result(all.next());
    TUTTI_EXPECT(refused.error == errc::truncated);
    TUTTI_EXPECT(refused.message.find("rank 1 has sent 12 bytes, and an element has 8") != std::string::npos);
    std::vector<float> got(3);
    co_await world.recv(got, 1);
    TUTTI_EXPECT(got == sent);
  });
}

TEST_CASE("all_reduce_chunks reports the failure of a chunk at every later call") {
  run_local(2, [](communicator world) -> task<> {
    std::vector<double> data(1000);
    auto chunks = world.all_reduce_chunks(data, sum, 10);
    world.abort();
    failure first;
    while (first.text.empty()) first = co_await failure_in(chunks.next());
    const failure again = co_await failure_in(chunks.next());
    TUTTI_EXPECT(first.code != errc::invalid_argument);
    TUTTI_EXPECT(again.code == first.code && again.text == first.text);
  });
}

TEST_CASE("all_reduce_chunks delivers every chunk once, in order, reduced") {
  for (const std::size_t count : {0UL, 1UL, 1000UL, 300001UL}) {
    for (const std::size_t chunk : {0UL, 1000UL, std::numeric_limits<std::size_t>::max()}) {
      run_local(3, [count, chunk](communicator world) -> task<> {
        std::vector<double> data(count);
        std::iota(data.begin(), data.end(), static_cast<double>(world.rank()));
        auto chunks = world.all_reduce_chunks(data, sum, chunk);
        std::size_t seen = 0, given = 0;
        for (;; ++given) {
          const std::optional<std::span<double>> one = co_await chunks.next();
          if (!one) break;
          TUTTI_EXPECT(one->data() == data.data() + seen);
          for (std::size_t i = 0; i < one->size(); ++i)
            TUTTI_EXPECT((*one)[i] == 3 * static_cast<double>(seen + i) + 3);
          seen += one->size();
        }
        TUTTI_EXPECT(seen == count);
        TUTTI_EXPECT(given == chunks.chunks());
      });
    }
  }
}
