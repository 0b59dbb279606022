// SPDX-License-Identifier: Apache-2.0
// The counters of a rank: messages, parks, and computations that block the loop.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <ctime>
#include <tutti/counters.hpp>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

// Uses this much processor time, however often the thread is interrupted.
void compute_for(std::chrono::nanoseconds time) {
  const auto used = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto end = used() + time;
  while (used() < end) {
  }
}

}  // namespace

TEST_CASE("messages are counted by their protocol") {
  run_local(2, over("shm"), [](communicator world) -> task<> {
    co_await world.barrier();
    const counters before = counters_of(world);
    std::vector<char> bytes(1 << 20);
    if (world.rank() == 0) {
      co_await world.send(bytes, 1);
      co_await world.send(bytes[0], 1);
    } else {
      co_await world.recv(bytes, 0);
      co_await world.recv(bytes[0], 0);
    }
    const counters after = counters_of(world);
    const bool sends = world.rank() == 0;
    TUTTI_EXPECT(after.sends - before.sends == (sends ? 2 : 0));
    TUTTI_EXPECT(after.receives - before.receives == (sends ? 0 : 2));
    TUTTI_EXPECT(after.rendezvous - before.rendezvous == (sends ? 1 : 0));
    TUTTI_EXPECT(counters_of(communicator()).sends == 0);
  });
}

TEST_CASE("computing on the loop thread counts as a stall, on the pool it does not") {
  run_local(1, [](communicator world) -> task<> {
    int x = 0;
    request pending = world.irecv(x, 0);
    co_await tutti::compute([] { compute_for(60ms); });
    TUTTI_EXPECT(counters_of(world).stalls == 0);
    compute_for(60ms);  // resumed by an Asio handler
    boost::asio::steady_timer timer(world.get_executor(), 0ms);
    co_await timer.async_wait(boost::asio::deferred);
    const int one = 1;
    co_await world.send(one, 0);
    co_await pending;
    compute_for(60ms);  // resumed by the loop
    co_await timer.async_wait(boost::asio::deferred);
    co_await world.barrier();
    const counters n = counters_of(world);
    TUTTI_EXPECT(n.stalls >= 1);
    TUTTI_EXPECT(n.longest_stall >= 40ms);
  });
}

TEST_CASE("messages that find no space are counted, and so are heap allocations of the pools") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    run_local(2, over(transport), [](communicator world) -> task<> {
      std::vector<char> bytes(std::size_t{64} << 20);
      int go = 0;
      if (world.rank() == 0) {
        request sending = world.isend(bytes, 1);
        co_await world.send(go, 1);
        co_await sending;
        std::uint64_t stalls = 0;
        for (const peer_counters& p : peer_counters_of(world)) stalls += p.rank == 1 ? p.stalls : 0;
        TUTTI_EXPECT(stalls > 0);
        TUTTI_EXPECT(prometheus_text(world).find("tutti_peer_stalls_total{rank=\"0\",peer=\"1\"} ") !=
                     std::string::npos);
      } else {
        request receiving = world.irecv(bytes, 0);
        co_await world.recv(go, 0);
        compute_for(100ms);  // the receiver has asked for the message but does not read it
        co_await receiving;
      }
      const counters before = counters_of(world);
      TUTTI_EXPECT(before.allocations > 0 && before.allocated_bytes > 0);
      {
        std::vector<int> values(200);
        std::vector<request> many;
        for (int i = 0; i < 200; ++i)
          many.push_back(world.irecv(values[static_cast<std::size_t>(i)], world.rank(), i));
      }
      const counters after = counters_of(world);
      TUTTI_EXPECT(after.allocations > before.allocations);
      TUTTI_EXPECT(after.allocated_bytes > before.allocated_bytes);
      TUTTI_EXPECT(prometheus_text(world).find("tutti_allocated_bytes_total{") != std::string::npos);
      co_await world.barrier();
    });
  }
}

TEST_CASE("messages and bytes are counted by peer, calls by operation, and exported for Prometheus") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    run_local(3, over(transport), [](communicator world) -> task<> {
      std::vector<char> bytes(100'000);
      if (world.rank() == 0) {
        co_await world.send(bytes, 2);
        co_await world.send(bytes[0], 2);
      } else if (world.rank() == 2) {
        co_await world.recv(bytes, 0);
        co_await world.recv(bytes[0], 0);
      }
      if (world.rank() != 1) {
        const int other = 2 - world.rank();
        bool found = false;
        for (const peer_counters& p : peer_counters_of(world)) {
          if (p.rank != other) continue;
          found = true;
          TUTTI_EXPECT((world.rank() == 0 ? p.sends : p.receives) >= 2);
          TUTTI_EXPECT((world.rank() == 0 ? p.bytes_sent : p.bytes_received) >= 100'001);
        }
        TUTTI_EXPECT(found);
      }
      co_await world.barrier();
      bool barrier = false;
      for (const operation_counters& o : operation_counters_of(world)) {
        if (o.name == "barrier") barrier = o.calls == 1;
        TUTTI_EXPECT(o.calls > 0);
        TUTTI_EXPECT(o.waited.count() >= 0);
      }
      TUTTI_EXPECT(barrier);
      const std::string text = prometheus_text(world);
      const std::string rank = std::to_string(world.rank());
      TUTTI_EXPECT(text.find("# TYPE tutti_sends_total counter\ntutti_sends_total{rank=\"" + rank + "\"} ") !=
                   std::string::npos);
      TUTTI_EXPECT(text.find("tutti_operations_total{rank=\"" + rank + "\",operation=\"barrier\"} 1\n") !=
                   std::string::npos);
      if (world.rank() == 0)
        TUTTI_EXPECT(text.find("tutti_peer_sends_total{rank=\"0\",peer=\"2\"} ") != std::string::npos);
      TUTTI_EXPECT(text.back() == '\n');
    });
  }
  CHECK(prometheus_text(communicator()).empty());
  CHECK(peer_counters_of(communicator()).empty());
}
