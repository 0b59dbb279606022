// SPDX-License-Identifier: Apache-2.0
// The socket on which rank 0 will serve the store. The launcher binds it, so that the port which the other
// ranks are told is taken from the start: nobody guesses a free one and loses it before rank 0 listens.
#pragma once

#include <optional>

#include "base/unique_fd.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

struct store_socket {
  base::unique_fd fd;     // listening, blocking, closed on exec
  host_and_port address;  // what the ranks connect to
};

// At `master`, or on a free port of the loopback interface. Throws std::runtime_error with a text for the
// user.
store_socket open_store_socket(const std::optional<host_and_port>& master);

}  // namespace tutti::launch
