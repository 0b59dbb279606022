// SPDX-License-Identifier: Apache-2.0
// How the thread of a loop shares its core: how long it stays awake when idle, whether it yields meanwhile, and how
// long the kernel lets it run at a time when others want the core.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::core {

// With a core of its own, a rank spins for about the cost of a sleep and a wake-up: a message that comes soon
// finds it awake. With more ranks than cores, spinning keeps the sender off the core: the loop yields at once,
// and parks when no other thread has wanted the core for about as long. Measured: a budget of 1 us is the worst of
// all (a park per message). Spinning without yield costs a time slice, 4 ms, per message.
//
// In a yield all others of the core may have a turn, so the more ranks share it, the fewer yields go before a park: with
// 64 ranks on a core, each round of 16 yields is 1,000 context switches that find nothing.
struct spin_policy {
  std::chrono::nanoseconds budget{50'000};
  bool yields = false;
  unsigned yields_between_looks = 16;  // at the clock and at Asio's handlers

  // Chooses by the ranks on this host, the cores they may use, and TUTTI_SPIN_US (microseconds) if set.
  static spin_policy choose(int local_ranks, int usable_cores);
};

// Sets how many ranks share this process's compute pool and cores. Has an effect until tutti::compute is first used.
void set_compute_ranks(int ranks) noexcept;
// While it lives, the thread that made it asks the kernel for short time slices: 100 us, the shortest
// possible, or TUTTI_SLICE_US microseconds (up to 100,000). 0 asks for nothing; other text throws
// errc::invalid_argument. The thread's share of the core stays the same, but a rank that is woken beside other
// work takes the core at once, instead of waiting for the end of the other's slice of 1.4 to 3 ms.
//
// Threads that it starts have the usual slices: the thread is marked SCHED_RESET_ON_FORK, for good, because
// removing the mark takes privileges; so does changing the thread's scheduling without that flag. Before Linux 6.12
// (sched_runtime of a SCHED_OTHER thread), and where it is not permitted, nothing happens.
class short_time_slices {
 public:
  short_time_slices();
  short_time_slices(const short_time_slices&) = delete;
  short_time_slices& operator=(const short_time_slices&) = delete;
  ~short_time_slices();  // restores the old slice; on the same thread

 private:
  std::uint64_t before_ = 0;  // nanoseconds; 0: nothing was changed
};

}  // namespace tutti::core
