// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer slows this program down, so that tests repeat less.
#pragma once

namespace tutti::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool instrumented = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = false;
#endif
#else
inline constexpr bool instrumented = false;
#endif

}  // namespace tutti::test
