// SPDX-License-Identifier: Apache-2.0
// coordination: what coordinates all nodes, as one node's launcher sees it: here, or at the other end of a
// connection. It commands by a function passed at construction, from the loop, never from inside these calls.
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

  // The node is ready for commands.
  virtual void begin() = 0;
  virtual void tell(const event& what) = 0;
  // The user has asked repeatedly: stops waiting for other nodes.
  virtual void lose_patience() = 0;
  // How far node 0's clock is ahead of this one's.
  virtual std::int64_t clock_offset_ns() const { return 0; }
  // The store's socket, with the command to start, on the node that has rank 0.
  virtual base::unique_fd take_store() { return {}; }
};

}  // namespace tutti::launch
