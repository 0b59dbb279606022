// SPDX-License-Identifier: Apache-2.0
// How long a loop with nothing to do stays awake, and whether it gives its core away meanwhile.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::core {

// With a core to itself a rank spins for about the price of a sleep and a wake-up, so that a message that is
// about to come is met awake. With more ranks than cores a spin keeps the sender off the core: the loop
// yields at once, and parks when nobody else wanted the core for about as long. Measured: a budget of 1 us is
// the worst of all (a park per message), and a spin without yield costs a time slice, 4 ms, per message.
struct spin_policy {
  std::chrono::nanoseconds budget{50'000};
  bool yields = false;

  // From the number of ranks on this host, the cores they may use, and TUTTI_SPIN_US (microseconds) where
  // set.
  static spin_policy choose(int local_ranks, int usable_cores);
};

// Cores this process may use: its affinity mask, and its cgroup's quota where that is smaller.
int usable_cores() noexcept;
// Cores that processes with these affinity masks (endpoint_record::cpus) may use together.
int usable_cores(const std::vector<std::string>& masks) noexcept;
// This process's affinity mask as hexadecimal digits, least significant core last.
std::string cpu_mask();

}  // namespace tutti::core
