// SPDX-License-Identifier: Apache-2.0
// How long the kernel lets a thread run at a time when others want its core.
#pragma once

#include <cstdint>

namespace tutti::core {

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
