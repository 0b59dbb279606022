// SPDX-License-Identifier: Apache-2.0
// The connecting side of a rendezvous: tries an address again and again, since who listens there may start
// later.
#pragma once

#include "bootstrap/address.hpp"
#include "core/handshake.hpp"

#include <optional>
#include <string>

namespace tutti::bootstrap {

enum class listener {
  may_come,  // later than this
  has_come   // before this: if the connection is refused now, no listener will appear later
};

// A connection to one of `addresses`, proved on both sides; nullopt when the deadline has passed, or when
// all of them refuse and the listener has come, with the last failure in `last_failure`, which outlives the
// task. Throws what no further attempt would cure:
// unauthorized, protocol, join_failed, cancelled.
task<std::optional<core::stream_socket>> connect_retry(boost::asio::any_io_executor executor,
                                                       endpoints addresses, std::string secret,
                                                       tls_identity tls, core::identity mine, listener whom,
                                                       core::time_point deadline, std::string* last_failure);

}  // namespace tutti::bootstrap
