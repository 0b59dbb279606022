// SPDX-License-Identifier: Apache-2.0
// status: the source, tag and length of a received message.
#pragma once

#include <cstddef>
#include <source_location>

namespace tutti {

// As a source: matches messages from every rank.
inline constexpr int any_source = -1;
// As a tag: matches messages with every tag.
inline constexpr int any_tag = -1;

// The place that calls an operation: a default argument. Functions that wrap an operation pass on their own.
#ifndef __cpp_lib_source_location
#error "tutti needs g++ 12 or clang++ 19, or later, with -std=c++20"
#endif
using call_site = std::source_location;

// The result of a receive or probe.
struct status {
  // Rank in the communicator that received the message.
  int source = any_source;
  int tag = any_tag;
  // Length of the message in bytes.
  std::size_t bytes = 0;

  // The length of the message in whole elements of T; `bytes` tells whether it is more.
  template <class T>
  std::size_t count() const noexcept {
    return bytes / sizeof(T);
  }
};

}  // namespace tutti
