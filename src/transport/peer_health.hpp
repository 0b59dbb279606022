// SPDX-License-Identifier: Apache-2.0
// The health of a link's peer, as far as this side can tell. Checked a few times a second for peers that an
// operation waits for.
#pragma once

#include "core/platform.hpp"

namespace tutti::transport {

struct peer_health {
  enum class condition {
    unknown,        // there is no connection, or nothing can be said over it
    well,           // its loop has turned, or it has answered
    resting,        // its loop sleeps until an event for it
    not_turning,    // its loop, whose turns this side sees, has not turned for `since`
    not_answering,  // its loop was asked and has not answered for `since`: busy, or stopped
    unresponsive    // its host was asked and nothing has come from it for `since`: dead, or cut off
  };
  condition is = condition::unknown;
  core::duration since{};
};

// How to check.
struct health_check {
  core::time_point now;
  // This rank itself has not run since the last check: what did not come meanwhile says nothing.
  bool again = false;
  // Whether to ask the peer's loop, which wakes it, or only its host.
  bool loop = true;
};

}  // namespace tutti::transport
