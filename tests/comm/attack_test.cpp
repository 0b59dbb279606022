// SPDX-License-Identifier: Apache-2.0
// Unauthenticated peers call every port while ranks work: all operations complete, and new ranks can join.
#include "common/unauthenticated_peers.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

init_options secured(bool tls) {
  init_options o = over("tcp");
  o.secret = "known to the ranks";
  o.tls = tls;
  return o;
}

// Computes sums until `stop`, and counts them.
task<> sum_until(communicator world, const std::atomic<bool>* stop, std::atomic<int>* rounds) {
  for (int round = 0;; ++round) {
    std::vector<int> x(1000, round + world.rank());
    int over = *stop ? 1 : 0;
    co_await world.all_reduce(x, sum);
    co_await world.all_reduce(over, max);
    const int expected = world.size() * round + world.size() * (world.size() - 1) / 2;
    for (const int value : x) TUTTI_EXPECT(value == expected);
    if (world.rank() == 0) rounds->store(round + 1);
    if (over != 0) co_return;
  }
}

task<> serve(std::promise<std::uint16_t>* port, const std::atomic<bool>* stop,
             boost::asio::io_context* context) {
  const std::unique_ptr<tcp_store_server> server =
      co_await tcp_store_server::listen(context->get_executor(), "127.0.0.1", 0, "known to the ranks", 20s);
  port->set_value(server->port());
  const std::unique_ptr<memory_store> own = server->local();
  while (!*stop) {
    try {
      co_await own->get("never", 5ms);
    } catch (const error&) {
    }
  }
}

task<> use_store(std::uint16_t port, boost::asio::io_context* context) {
  const std::unique_ptr<tcp_store> client =
      co_await tcp_store::connect(context->get_executor(), "127.0.0.1", port, "known to the ranks", 1, 20s);
  for (int i = 0; i < 20; ++i) {
    co_await client->set("k", std::to_string(i));
    const std::string back = co_await client->get("k", 20s);
    TUTTI_EXPECT(back == std::to_string(i));
  }
}

void attack(bool tls) {
  std::atomic<bool> stop = false;
  std::atomic<int> rounds = 0;
  // Their threads are joined by the end of this function, also by an exception.
  std::future<void> ranks = std::async(std::launch::async, [&] {
    run_local(4, secured(tls), [&](communicator world) { return sum_until(world, &stop, &rounds); });
  });
  std::promise<std::uint16_t> port;
  std::future<void> store = std::async(std::launch::async, [&] {
    try {
      boost::asio::io_context context;
      run_task(context, serve(&port, &stop, &context));
    } catch (...) {
      port.set_exception(std::current_exception());
    }
  });
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> at_end(&stop,
                                                                                [](auto* s) { *s = true; });
  const std::uint16_t store_port = port.get_future().get();
  while (rounds == 0 && ranks.wait_for(0s) != std::future_status::ready) std::this_thread::yield();
  const std::vector<std::uint16_t> ports = perf::listening_ports();
  CHECK(ports.size() == 5);
  perf::unauthenticated_peers crowd(ports);
  const int before = rounds;
  const auto begin = std::chrono::steady_clock::now();
  int joined = 0;
  while (crowd.calls() < 1500 && std::chrono::steady_clock::now() - begin < 30s) {
    // Authenticated peers: one uses the store, others form a second world.
    boost::asio::io_context context;
    run_task(context, use_store(store_port, &context));
    std::atomic<bool> at_once = true;
    std::atomic<int> once = 0;
    run_local(3, secured(tls), [&](communicator world) { return sum_until(world, &at_once, &once); });
    CHECK(once == 1);
    ++joined;
  }
  crowd.stop();
  CHECK(crowd.calls() >= 300);
  CHECK(crowd.learnt_bytes() == 0);
  CHECK(joined > 0);
  CHECK(rounds > before);
  stop = true;
  ranks.get();
  store.get();
}

}  // namespace

TEST_CASE("attack: a thousand unauthenticated peers a second do not disturb the ranks") { attack(false); }

TEST_CASE("attack: the same holds with TLS") {
#ifdef TUTTI_HAVE_TLS
  TUTTI_NEEDS_TLS();
  attack(true);
#else
  TUTTI_SKIP("built without OpenSSL; for it: apt-get install libssl-dev");
#endif
}
