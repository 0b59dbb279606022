// SPDX-License-Identifier: Apache-2.0
// connect_retry: the connecting side of a rendezvous: tries addresses repeatedly, because the listener may
// start later.
#pragma once

#include "bootstrap/address.hpp"
#include "core/handshake.hpp"

#include <optional>
#include <string>

namespace tutti::bootstrap {

enum class listener {
  may_come,  // the listener may start later than this call
  has_come   // it started before: if the connection is refused now, no listener will appear later
};

// Returns a connection to one of `addresses`, proved on both sides. Returns nullopt when the deadline has
// passed, or when all of them refuse and the listener has already started. `last_failure`, which outlives the
// task, then has the last failure. Throws errors that no further attempt would cure: unauthorized, protocol,
// join_failed, cancelled.
task<std::optional<core::stream_socket>> connect_retry(boost::asio::any_io_executor executor,
                                                       endpoints addresses, std::string secret,
                                                       tls_identity tls, core::identity mine, listener whom,
                                                       core::time_point deadline, std::string* last_failure);

}  // namespace tutti::bootstrap
