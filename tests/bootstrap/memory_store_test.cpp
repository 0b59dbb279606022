// SPDX-License-Identifier: Apache-2.0
// memory_store, and prefix_store on it.
#include "bootstrap/store_conformance.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <tutti/store.hpp>

using namespace tutti;
using namespace std::chrono_literals;
using test::run_task;

TEST_CASE("memory_store conforms to the interface of stores") {
  boost::asio::io_context context;
  memory_store a(context.get_executor());
  memory_store b(context.get_executor(), a);
  test::check_store(context, a, b);
}

TEST_CASE("prefix_store conforms to the interface of stores") {
  boost::asio::io_context context;
  memory_store base(context.get_executor());
  prefix_store a(base, "p"), b(base, "p");
  run_task(context, base.set("outside", "x"));
  test::check_store(context, a, b);
}

TEST_CASE("prefix_store keeps its keys apart from others") {
  boost::asio::io_context context;
  memory_store base(context.get_executor());
  prefix_store p(base, "p"), q(base, "q"), inner(p, "inner");
  run_task(context, p.set("k", "of p"));
  run_task(context, q.set("k", "of q"));
  run_task(context, inner.set("k", "of inner"));
  CHECK(run_task(context, p.get("k")) == "of p");
  CHECK(run_task(context, q.get("k")) == "of q");
  CHECK(run_task(context, base.get("p/inner/k")) == "of inner");
  CHECK(run_task(context, p.count()) == 2);
  CHECK(run_task(context, inner.count()) == 1);
  CHECK(inner.name() == "'inner/' in 'p/' in memory_store");
}

TEST_CASE("a store holds a limited number of bytes") {
  boost::asio::io_context context;
  memory_store s(context.get_executor());
  constexpr std::size_t value_bytes = std::size_t{15} << 20;
  constexpr int fit = 17;  // in 256 MiB
  const auto key = [](int i) { return "k" + std::to_string(i); };
  // What is set again, or has gone, does not count.
  for (int i = 0; i < 2 * fit; ++i) {
    run_task(context, s.set(key(0), std::string(value_bytes, 'x')));
    run_task(context, s.append(key(1), std::string(value_bytes, 'x')));
    CHECK(run_task(context, s.erase(key(1))));
    run_task(context, s.compare_exchange(key(1), "", std::string(value_bytes, 'x')));
    run_task(context, s.compare_exchange(key(1), std::string(value_bytes, 'x'), ""));
  }
  for (int i = 0; i < fit; ++i) run_task(context, s.set(key(i), std::string(value_bytes, 'x')));
  const auto too_much = [&](task<> change) {
    const test::failure f = test::failure_of([&] { run_task(context, std::move(change)); });
    CHECK(f.code == errc::resources);
    CHECK_MESSAGE(f.says("the store would hold more than"), f.text);
  };
  const auto append = [](store& to, std::string at, std::size_t bytes) -> task<> {
    co_await to.append(std::move(at), std::string(bytes, 'x'));
  };
  too_much(s.set(key(fit), std::string(value_bytes, 'x')));
  too_much(append(s, key(fit), value_bytes));
  run_task(context, append(s, key(fit), 1000));
  too_much(append(s, key(fit), value_bytes));
  CHECK(run_task(context, s.get(key(fit))).size() == 1000);
  CHECK(run_task(context, s.count()) == fit + 1);
  run_task(context, s.erase(key(3)));
  run_task(context, s.set(key(fit), std::string(value_bytes, 'x')));
}

TEST_CASE("operations without a timeout use that of the store") {
  boost::asio::io_context context;
  memory_store s(context.get_executor());
  CHECK(s.timeout() == 10min);
  s.set_timeout(30ms);
  const test::failure f = test::failure_of([&] { run_task(context, s.get("k")); });
  CHECK(f.code == errc::timed_out);
  CHECK(f.says("30 ms"));
  CHECK(test::failure_of([&] { s.set_timeout(-1ms); }).code == errc::invalid_argument);
}

namespace {

task<std::int64_t> count_up(store& s, int times) {
  std::int64_t last = 0;
  for (int i = 0; i < times; ++i) {
    last = co_await s.add("counter", 1);
  }
  co_return last;
}

// Each rank sets its key and gets those of the others, round by round: another thread ends every wait.
task<> exchange(store& s, int rank, int ranks, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    co_await s.set(std::to_string(round) + "/" + std::to_string(rank), std::to_string(rank * round));
    for (int other = 0; other < ranks; ++other) {
      const std::string value = co_await s.get(std::to_string(round) + "/" + std::to_string(other));
      if (value != std::to_string(other * round)) throw error(errc::system, "wrong value " + value);
    }
  }
}

}  // namespace

TEST_CASE("threads share one memory_store") {
  constexpr int ranks = 4;
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  const auto failures = test::run_threads(ranks, [&](int rank) {
    boost::asio::io_context context;
    memory_store mine(context.get_executor(), shared);
    run_task(context, count_up(mine, 500));
    run_task(context, exchange(mine, rank, ranks, 50));
  });
  for (const auto& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  boost::asio::io_context context;
  memory_store mine(context.get_executor(), shared);
  CHECK(run_task(context, mine.get("counter")) == "2000");
}

TEST_CASE("waiters that time out, or are destroyed with their thread, are not touched afterwards") {
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  std::atomic<bool> over{false};
  // One thread sets the key all the time. The others wait for it, time out, and destroy their io_context.
  std::thread setter([&] {
    boost::asio::io_context context;
    memory_store mine(context.get_executor(), shared);
    while (!over.load()) {
      run_task(context, mine.set("k", "v"));
      run_task(context, mine.erase("k"));
    }
  });
  const auto failures = test::run_threads(3, [&](int rank) {
    for (int i = 0; i < 200; ++i) {
      boost::asio::io_context context;
      memory_store mine(context.get_executor(), shared);
      test::waited dropped, kept;
      {
        core::background_tasks tasks;
        tasks.start(test::get_into(mine, "k", 50s, &dropped));
        tasks.start(test::wait_into(mine, "k", std::chrono::milliseconds(rank), &kept));
        test::run_until(context, [&] { return kept.done; });
      }
    }
  });
  over = true;
  setter.join();
  for (const auto& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
}
