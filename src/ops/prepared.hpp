// SPDX-License-Identifier: Apache-2.0
// What prepare() finds out about a call once, and the operations made from it reuse.
#pragma once

#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/operation_state.hpp>

namespace tutti::detail {

struct prepared_call {
  explicit prepared_call(const call& c) noexcept : what(c) {}
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* made, std::size_t bytes) noexcept { release_frame(made, bytes); }

  call what;  // each operation is a copy of it
  // Of a collective:
  p2p::fingerprint print{};
  algorithm with = algorithm::automatic;
  bool in_use = false;   // by an operation that has not ended, including prepare itself
  bool dropped = false;  // its handle has gone: that operation frees it
};

}  // namespace tutti::detail
