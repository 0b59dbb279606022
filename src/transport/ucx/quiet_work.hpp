// SPDX-License-Identifier: Apache-2.0
// ucx_transport::work_quietly, for its links.
#pragma once

#include "core/loop.hpp"
#include "transport/ucx/ucx_transport.hpp"

#include <sched.h>

namespace tutti::transport::ucx {

template <class Done>
bool ucx_transport::work_quietly(core::duration patience, const std::uint64_t& events, Done done) noexcept {
  core::platform& clock = loop_.engine().platform();
  std::uint64_t seen = events;
  core::time_point until = clock.now() + patience;
  for (;;) {
    if (done()) return true;
    receive_aside();
    if (ucx_->call.ucp_worker_progress(worker_) == 0) ::sched_yield();  // the peer may need this core
    if (seen != events) {
      seen = events;
      until = clock.now() + patience;
    } else if (clock.now() >= until) {
      return done();
    }
  }
}

}  // namespace tutti::transport::ucx
