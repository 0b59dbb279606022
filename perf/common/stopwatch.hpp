// SPDX-License-Identifier: Apache-2.0
// Time, processor time and sleeps of one rank between start() and stop().
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>

namespace perf {

struct resource_use {
  double cpu_seconds = 0;   // user and system, all threads
  std::int64_t sleeps = 0;  // voluntary context switches: the rank slept (sched_yield does not count)

  static resource_use now() noexcept {
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return {seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_nvcsw};
  }
};

class stopwatch {
 public:
  // The clock is read innermost, so that getrusage is not in the measured time.
  void start() noexcept {
    use_ = resource_use::now();
    begin_ = clock::now();
  }
  void stop() noexcept {
    seconds_ = std::chrono::duration<double>(clock::now() - begin_).count();
    const resource_use after = resource_use::now();
    use_ = {after.cpu_seconds - use_.cpu_seconds, after.sleeps - use_.sleeps};
  }

  double seconds() const noexcept { return seconds_; }
  const resource_use& use() const noexcept { return use_; }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point begin_;
  resource_use use_;
  double seconds_ = 0;
};

}  // namespace perf
