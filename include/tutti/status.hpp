// SPDX-License-Identifier: Apache-2.0
// What a receive learns about its message.
#pragma once

#include <cstddef>
#include <source_location>

namespace tutti {

inline constexpr int any_source = -1;  // a receive that takes messages from every rank
inline constexpr int any_tag = -1;     // a receive that takes messages with every tag

// Where an operation is called, in the user's program. A default argument; wrappers of operations hand on
// their own.
using call_site = std::source_location;

struct status {
  int source = any_source;  // rank in the communicator the message was received on
  int tag = any_tag;
  std::size_t bytes = 0;  // length of the message, in bytes

  // The length in elements of T.
  template <class T>
  std::size_t count() const noexcept {
    return bytes / sizeof(T);
  }
};

}  // namespace tutti
