// SPDX-License-Identifier: Apache-2.0
// Checks that a steady state allocates nothing. Include it once in a program: it replaces operator new.
#pragma once

#include "support/operator_new.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>

namespace tutti::test {

inline constinit thread_local std::uint64_t allocations = 0;  // of this thread, since its start

inline void* memory_for(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  return plain_memory(bytes, alignment);
}
inline bool refuses_aligned_alloc() noexcept {
  ++allocations;
  return false;
}

// The pace of the ranks determines how far pools and lists grow, which may happen in any round. So one
// measurement without an allocation is enough.
inline constexpr int measurements = 30;

inline void expect_none(const char* what, std::uint64_t fewest, int rounds) {
  if (fewest != 0)
    throw std::runtime_error(std::string(what) + ": at least " + std::to_string(fewest) + " allocations in " +
                             std::to_string(rounds) + " rounds");
}

// Runs each of these programs, which take `place` and a number of rounds.
template <class Place, class Programs>
task<> allocate_nothing(communicator world, Place place, const Programs& all, int rounds) {
  for (const auto& p : all) {
    std::uint64_t fewest = ~std::uint64_t{0};
    for (int i = 0, any = 1; i < measurements && any != 0; ++i) {
      co_await world.barrier();
      const std::uint64_t before = allocations;
      co_await p.body(place, rounds);
      fewest = std::min(fewest, allocations - before);
      any = fewest != 0 ? 1 : 0;
      co_await world.all_reduce(any, tutti::max);
    }
    expect_none(p.name, fewest, rounds);
  }
}

}  // namespace tutti::test
