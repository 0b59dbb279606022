// SPDX-License-Identifier: Apache-2.0
// A vendor's library, connected for the ranks of one communicator.
#pragma once

#include "comm/device_group.hpp"

#include <tutti/task.hpp>

namespace tutti::gpu::detail {

class vendor {
 public:
  virtual ~vendor() = default;
  // Carries out one operation that the library can serve, after w->what.ready. Takes its place in the order
  // and ends its turn before it first waits.
  // Completes: when all its work is in streams.
  // Cancellation: destroying the frame, or w->stop later, ends the connection with all that is pending: the
  // library takes nothing back. The other ranks learn of it through the operation's communicator.
  virtual task<> perform(work_state* w, device_group::turn* mine) = 0;
};

}  // namespace tutti::gpu::detail
