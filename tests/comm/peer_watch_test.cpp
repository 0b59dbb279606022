// SPDX-License-Identifier: Apache-2.0
// Ranks that compute, as threads. Stopped and unresponsive ranks need processes: watch_process_test.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

task<> nap(communicator world, std::chrono::milliseconds d) {
  boost::asio::steady_timer timer(world.get_executor(), d);
  co_await timer.async_wait(boost::asio::deferred);
}

using list = std::vector<int>;

// The rank that calls is suspecting others, or no longer, within the time.
task<> until_suspects(communicator world, bool some) {
  const auto most = std::chrono::steady_clock::now() + patience;
  while (world.suspected_ranks().empty() == some && std::chrono::steady_clock::now() < most)
    co_await nap(world, 20ms);
  TUTTI_EXPECT(world.suspected_ranks().empty() != some);
}

// Runs main(world, shared) over all these transports at once. The ranks of one world share a `Shared`.
template <class Shared, class F>
void on_each_transport(int ranks, F main, const std::vector<std::string>& over_these = transports) {
  const auto failures = run_threads(static_cast<int>(over_these.size()), [&](int i) {
    Shared shared{};
    run_local(ranks, over(over_these[static_cast<std::size_t>(i)]),
              [&shared, &main](communicator world) { return main(std::move(world), &shared); });
  });
  for (std::size_t i = 0; i < failures.size(); ++i) {
    CAPTURE(over_these[i]);
    CHECK_MESSAGE(failures[i].code == errc::success, failures[i].text);
  }
}

}  // namespace

TEST_SUITE("comm/peer_watch") {
  TEST_CASE("a rank that blocks its loop is suspected by ranks that wait for it, until it goes on") {
    const auto blocks = [](communicator world, std::atomic<bool>* seen) -> task<> {
      int value = world.rank();
      co_await world.barrier();
      if (world.rank() == 1) {
        // On the loop thread, until rank 0 suspects this rank.
        const auto most = std::chrono::steady_clock::now() + patience;
        while (!*seen && std::chrono::steady_clock::now() < most) std::this_thread::sleep_for(1ms);
        TUTTI_EXPECT(*seen);
        co_await world.send(value, 0);
      } else if (world.rank() == 0) {
        TUTTI_EXPECT(world.suspected_ranks().empty());
        request waiting = world.irecv(value, 1);
        co_await until_suspects(world, true);
        TUTTI_EXPECT(world.suspected_ranks() == list{1});
        TUTTI_EXPECT(world.failed_ranks().empty());
        *seen = true;
        co_await waiting;
        TUTTI_EXPECT(value == 1);
        co_await until_suspects(world, false);
      }
      co_await world.barrier();
      // Rank 2 waits in the barrier for ranks other than rank 1, or too shortly to matter.
      TUTTI_EXPECT(world.failed_ranks().empty());
    };
    if (!emulated()) return on_each_transport<std::atomic<bool>>(3, blocks);
    on_each_transport<std::atomic<bool>>(3, blocks, {"shm"});
    TUTTI_NEEDS_A_KERNEL("say what the kernel knows of a connection: not over tcp");
  }

  TEST_CASE("ranks that only wait, for messages and for each other, are not suspected") {
    on_each_transport<char>(2, [](communicator world, char*) -> task<> {
      int value = 0;
      co_await world.barrier();
      request waiting;
      if (world.rank() == 0) waiting = world.irecv(value, 1);
      // Longer than the interval between two checks.
      for (int i = 0; i < 20; ++i) {
        co_await nap(world, 100ms);
        TUTTI_EXPECT(world.suspected_ranks().empty());
      }
      if (world.rank() == 1) co_await world.send(world.rank(), 0);
      if (world.rank() == 0) co_await waiting;
    });
  }

  TEST_CASE("a receive from any of several ranks suspects none of them for being busy") {
    on_each_transport<std::atomic<bool>>(3, [](communicator world, std::atomic<bool>* over_it) -> task<> {
      int value = 0;
      co_await world.barrier();
      if (world.rank() == 0) {
        request waiting = world.irecv(value, any_source);
        for (int i = 0; i < 20; ++i) {
          co_await nap(world, 100ms);
          TUTTI_EXPECT(world.suspected_ranks().empty());
        }
        *over_it = true;
        co_await waiting;
      } else if (world.rank() == 1) {
        const auto most = std::chrono::steady_clock::now() + patience;
        while (!*over_it && std::chrono::steady_clock::now() < most) std::this_thread::sleep_for(1ms);
        co_await world.send(world.rank(), 0);
      }
    });
  }

  TEST_CASE("a runtime that has ended and an empty handle have no suspects") {
    CHECK(communicator().suspected_ranks().empty());
  }
}
