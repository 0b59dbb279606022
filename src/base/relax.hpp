// SPDX-License-Identifier: Apache-2.0
// A pause between two polls of a word that another core will write.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::base {

inline void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti::base
