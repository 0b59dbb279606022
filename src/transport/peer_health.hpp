// SPDX-License-Identifier: Apache-2.0
// How the peer of a link is, as far as this side can tell. Asked a few times a second, for peers that are
// waited for.
#pragma once

#include "core/platform.hpp"

namespace tutti::transport {

struct peer_health {
  enum class condition {
    unknown,        // there is no connection, or nothing can be said over it
    well,           // its loop has turned, or it has answered
    resting,        // its loop sleeps until an event for it
    not_turning,    // its loop, of which this side sees each turn, has not turned for `since`
    not_answering,  // its loop, which was asked, has said nothing for `since`: busy, or stopped
    unresponsive    // nothing has come from its host for `since`, although it was asked: dead, or cut off
  };
  condition is = condition::unknown;
  core::duration since{};
};

// How to check.
struct health_check {
  core::time_point now;
  // Since the last look this rank itself has not run: what did not come meanwhile says nothing.
  bool again = false;
  // Whether the peer's loop is to be asked, which wakes it, or only its host.
  bool loop = true;
};

}  // namespace tutti::transport
