// SPDX-License-Identifier: Apache-2.0
#include "core/scheduling.hpp"

#include "base/env.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tutti::core {

spin_policy spin_policy::choose(int local_ranks, int usable) {
  spin_policy policy;
  policy.yields = local_ranks > usable;
  const int turns_of_others = 64;  // in the yields between two looks; of 4 ranks a core and fewer, less
  policy.yields_between_looks =
      static_cast<unsigned>(std::clamp(turns_of_others * usable / std::max(local_ranks, 1), 2, 16));
  if (const auto wanted = base::env_integer("TUTTI_SPIN_US", 0, 1'000'000'000))
    policy.budget = std::chrono::microseconds(*wanted);
  return policy;
}

namespace {

// The kernel's struct sched_attr; not every C library has it.
struct attributes {
  std::uint32_t size = sizeof(attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(attributes) == 48);

constexpr std::uint64_t reset_on_fork = 1;
constexpr std::int64_t usual_us = 100;  // the shortest that the kernel grants
constexpr std::int64_t most_us = 100'000;

bool get(attributes& of) noexcept { return ::syscall(SYS_sched_getattr, 0, &of, sizeof of, 0) == 0; }

void set_runtime(attributes of, std::uint64_t nanoseconds) noexcept {
  of.runtime = nanoseconds;
  // For the threads that this one starts, which would lose a nice value below 0.
  if (of.nice >= 0) of.flags |= reset_on_fork;
  static_cast<void>(::syscall(SYS_sched_setattr, 0, &of, 0));
}

}  // namespace

short_time_slices::short_time_slices() {
  const std::int64_t wanted = base::env_integer("TUTTI_SLICE_US", 0, most_us).value_or(usual_us);
  attributes now;
  // Before Linux 6.12 the runtime is 0: it cannot be set.
  if (wanted == 0 || !get(now) || now.policy != SCHED_OTHER || now.runtime == 0) return;
  const auto nanoseconds = static_cast<std::uint64_t>(wanted) * 1000;
  if (now.runtime <= nanoseconds) return;
  before_ = now.runtime;
  set_runtime(now, nanoseconds);
}

short_time_slices::~short_time_slices() {
  attributes now;
  if (before_ != 0 && get(now) && now.policy == SCHED_OTHER) set_runtime(now, before_);
}

}  // namespace tutti::core
