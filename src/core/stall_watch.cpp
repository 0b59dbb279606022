// SPDX-License-Identifier: Apache-2.0
#include "core/stall_watch.hpp"

#include "base/env.hpp"
#include "base/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace tutti::core {

stall_watch::stall_watch() {
  constexpr std::int64_t otherwise_ms = 100;
  warn_at_ = std::chrono::milliseconds(base::env_integer("TUTTI_STALL_WARNING_MS", 0).value_or(otherwise_ms));
}

duration stall_watch::processor_time() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

void stall_watch::sample(time_point now) noexcept {
  sampled_ = now;
  used_ = processor_time();
}

void stall_watch::found(time_point now, bool waiting) noexcept {
  const duration before = used_;
  sample(now);
  note(last_, now, used_ - before, waiting);
}

void stall_watch::note(time_point from, time_point to, duration used, bool waiting) noexcept {
  last_ = to;
  const duration stall = std::min(to - from, used);
  if (stall < least) return;
  ++counters_.stalls;
  counters_.longest = std::max(counters_.longest, stall);
  if (!waiting || warn_at_ == duration::zero() || stall < warn_at_) return;
  warn_at_ = 4 * stall;  // each line reports a worse stall than the last
  base::log_warning(fmt::format(
      "what a coroutine or handler computed on the loop thread kept it from communicating for {} ms while "
      "operations were waiting; co_await tutti::compute(...) moves such work to the compute pool "
      "(TUTTI_STALL_WARNING_MS: from how long on this is said, 0 for never)",
      std::chrono::duration_cast<std::chrono::milliseconds>(stall).count()));
}

}  // namespace tutti::core
