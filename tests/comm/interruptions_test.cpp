// SPDX-License-Identifier: Apache-2.0
// A thousand signals a second interrupt system calls, without effect on joining, communicating and leaving.
#include "support/local_world.hpp"

#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>

using namespace tutti;
using namespace tutti::test;

namespace {

std::atomic<int> signals{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Sends signals during its lifetime, to whichever thread the kernel selects.
class storm {
 public:
  storm() {
    struct sigaction handle{};
    handle.sa_handler = [](int) { signals.fetch_add(1, std::memory_order_relaxed); };
    handle.sa_flags = 0;  // without SA_RESTART
    REQUIRE(::sigaction(SIGALRM, &handle, &before_) == 0);
    set(1000);
  }
  storm(const storm&) = delete;
  ~storm() {
    set(0);
    ::sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void set(int microseconds) {
    itimerval every{};
    every.it_value.tv_usec = every.it_interval.tv_usec = microseconds;
    ::setitimer(ITIMER_REAL, &every, nullptr);
  }
  struct sigaction before_{};
};

task<> communicate(communicator world) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  bool over = false;
  for (int round = 0; !over; ++round) {
    std::vector<double> data(round % 3 == 0 ? 200'000 : 10, 1.0);
    co_await world.all_reduce(data, tutti::sum);
    TUTTI_EXPECT(data.front() == world.size() && data.back() == world.size());
    const int next = (world.rank() + 1) % world.size(),
              last = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::byte> mine = filled(70'000, static_cast<std::uint64_t>(world.rank())),
                           theirs(mine.size());
    request sending = world.isend(mine, next);
    co_await world.recv(theirs, last);
    co_await sending;
    TUTTI_EXPECT(theirs == filled(70'000, static_cast<std::uint64_t>(last)));
    // All ranks stop after the same round.
    int go_on = std::chrono::steady_clock::now() < until ? 1 : 0;
    co_await world.all_reduce(go_on, tutti::min);
    over = go_on == 0;
  }
}

}  // namespace

TEST_SUITE("comm/interruptions") {
  TEST_CASE("joining, communicating and leaving work during a storm of signals") {
    for (const std::string& transport : transports) {
      CAPTURE(transport);
      const storm raging;
      const int before = signals;
      for (int i = 0; i < 3; ++i) run_local(3, over(transport), communicate);
      CHECK(signals - before > 100);
    }
  }
}
