// SPDX-License-Identifier: Apache-2.0
// How long an idle loop stays awake, and whether it yields its core meanwhile.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::core {

// With a core of its own, a rank spins for about the cost of a sleep and a wake-up: a message that comes soon
// finds it awake. With more ranks than cores, spinning keeps the sender off the core: the loop yields at once,
// and parks when no other thread has wanted the core for about as long. Measured: a budget of 1 us is the worst of
// all (a park per message). Spinning without yield costs a time slice, 4 ms, per message.
struct spin_policy {
  std::chrono::nanoseconds budget{50'000};
  bool yields = false;

  // Chooses by the ranks on this host, the cores they may use, and TUTTI_SPIN_US (microseconds) if set.
  static spin_policy choose(int local_ranks, int usable_cores);
};

// Cores that processes with these affinity masks (endpoint_record::cpus), or this one, may use together: as many as
// the cgroup's quota at most.
int usable_cores(const std::vector<std::string>& masks = {}) noexcept;
// Sets how many ranks share this process's compute pool and cores. Has an effect until tutti::compute is first used.
void set_compute_ranks(int ranks) noexcept;
// This process's affinity mask as hexadecimal digits, least significant core last; empty if it is unknown.
std::string cpu_mask();

}  // namespace tutti::core
