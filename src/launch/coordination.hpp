// SPDX-License-Identifier: Apache-2.0
// What a node's launcher has above it: the one who coordinates all nodes, here or at the other end of a
// connection. It commands by a function that it was made with, from the loop, never from inside these calls.
#pragma once

#include <cstdint>

#include "base/unique_fd.hpp"
#include "launch/node_messages.hpp"

namespace tutti::launch {

class coordination {
 public:
  coordination() = default;
  coordination(const coordination&) = delete;
  coordination& operator=(const coordination&) = delete;
  virtual ~coordination() = default;

  // The node is ready to be commanded.
  virtual void begin() = 0;
  virtual void tell(const event& what) = 0;
  // The user has asked again and again: waits for no other node any more.
  virtual void lose_patience() = 0;
  // How far node 0's clock is ahead of this one's.
  virtual std::int64_t clock_offset_ns() const { return 0; }
  // With the command to start: the store's socket, on the node that has rank 0.
  virtual base::unique_fd take_store() { return {}; }
};

}  // namespace tutti::launch
