// SPDX-License-Identifier: Apache-2.0
// A library of a device's vendor, connected for the ranks of one communicator.
#pragma once

#include "comm/device_group.hpp"

#include <tutti/task.hpp>

namespace tutti::gpu::detail {

class vendor {
 public:
  virtual ~vendor() = default;
  // Carries out one operation of a call that it can serve, after w->what.ready: done when all of it is in streams.
  // Has its place in the order, and ends its turn, before it first waits. Destroying the frame, or w->stop
  // afterwards, ends the connection with all that is pending: a vendor's library takes nothing back. The other ranks
  // hear of it by their communicator.
  virtual task<> perform(work_state* w, device_group::turn* mine) = 0;
};

}  // namespace tutti::gpu::detail
