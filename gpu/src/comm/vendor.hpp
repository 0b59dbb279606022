// SPDX-License-Identifier: Apache-2.0
// A vendor's library, connected for the ranks of one communicator, and how each is connected.
#pragma once

#include "comm/device_group.hpp"

#include <memory>
#include <string_view>
#include <tutti/gpu/sycl_queue.hpp>
#include <tutti/task.hpp>

namespace tutti {

namespace gpu::detail {

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

}  // namespace gpu::detail

// Each library has a function that connects the ranks of `control`, a collective, and one that says why it cannot
// serve a call. The text is empty if it can, and the same on all ranks.
namespace nccl {
task<std::shared_ptr<gpu::detail::vendor>> connect(communicator control, gpu::device on);
std::string_view why_not_by_nccl(const gpu::detail::call& c) noexcept;
}  // namespace nccl
namespace oneccl {
task<std::shared_ptr<gpu::detail::vendor>> connect(communicator control, gpu::device on, sycl_queue queue);
std::string_view why_not_by_oneccl(const gpu::detail::call& c, bool by_queue) noexcept;
}  // namespace oneccl

}  // namespace tutti
