// SPDX-License-Identifier: Apache-2.0
// How long the kernel lets a thread run at a time when others want its core.
#pragma once

#include <cstdint>

namespace tutti::core {

// While this lives, the thread that made it asks the kernel for short turns: 100 us, the least that there is,
// or TUTTI_SLICE_US microseconds (to 100,000; 0: nothing is asked for; other text throws
// errc::invalid_argument). Its share of the core stays the same, but it is due sooner: a rank that is woken
// beside other work takes the core at once, and not, for every message, when the other's turn of 1.4 to 3 ms
// is over. Threads that it starts have the usual turns: the thread is marked SCHED_RESET_ON_FORK, and stays
// so, for without privileges that cannot be taken back (who changes its scheduling later without privileges
// must pass the flag, too). Since Linux 6.12 (sched_setattr, sched_runtime of a thread of SCHED_OTHER);
// nothing happens before that, and where it is not allowed.
class short_time_slices {
 public:
  short_time_slices();
  short_time_slices(const short_time_slices&) = delete;
  short_time_slices& operator=(const short_time_slices&) = delete;
  ~short_time_slices();  // as before; on the same thread

 private:
  std::uint64_t before_ = 0;  // nanoseconds; 0: nothing was changed
};

}  // namespace tutti::core
