// SPDX-License-Identifier: Apache-2.0
#include "coll/kernels.hpp"

#include <atomic>

namespace tutti::coll {
namespace {

constinit std::atomic<const kernels*> current{nullptr};

}  // namespace

std::span<const kernels* const> all_kernels() noexcept {
  static constexpr const kernels* all[] = {
      &baseline_kernels,
#if defined(__x86_64__)
      &avx2_kernels,
      &avx512_kernels,
#endif
  };
  return all;
}

const kernels& current_kernels() noexcept {
  // relaxed: the tables are constants, so nothing else is published
  const kernels* chosen = current.load(std::memory_order_relaxed);
  if (chosen == nullptr) {
    for (const kernels* each : all_kernels())
      if (each->usable()) chosen = each;
    current.store(chosen, std::memory_order_relaxed);
  }
  return *chosen;
}

void choose_kernels(const kernels& chosen) noexcept { current.store(&chosen, std::memory_order_relaxed); }

}  // namespace tutti::coll
