// SPDX-License-Identifier: Apache-2.0
// Addresses of the TCP transport: where a rank listens, how peers write that down, and how sockets are set
// up.
#pragma once

#include "base/unique_fd.hpp"
#include "core/socket_io.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <string>

namespace tutti::transport::tcp {

// Returns the numeric address at which peers can reach this process.
//   TUTTI_ADDRESS if set; else an address of the interface that TUTTI_INTERFACE names; else loopback if there
//   is no secret or no other host is wanted; else the address of the interface that leads to where the
//   ranks meet.
// Throws errc::invalid_argument, naming the variable, if TUTTI_ADDRESS is no numeric address of an interface,
// TUTTI_INTERFACE does not exist, or the two contradict each other. Also if they are not loopback although
// there is no secret, or if nothing leads to the rendezvous point.
std::string listen_address(const listen_wish& wish);

struct listener {
  base::unique_fd fd;    // non-blocking
  std::string endpoint;  // "127.0.0.1:4711", "[::1]:4711"
};
// Opens a listener at a free port of `address`. Throws errc::invalid_argument if this host has no such
// address, otherwise errc::resources or errc::system.
listener open_listener(const std::string& address);

// Parses "127.0.0.1:4711" or "[::1]:4711" as an address to connect to. Throws errc::invalid_argument.
core::stream_endpoint parse_endpoint(const std::string& text);
bool is_loopback(const std::string& endpoint) noexcept;

// Sets the options of a connected socket. No Nagle: frames leave at once. Keepalive finds within about 8 s
// that an idle peer's host has gone, even if no operation waits for it (heartbeat.hpp covers the other case).
// TCP_USER_TIMEOUT stays unset, although it would bound the wait for an acknowledgement. It also ends
// connections to live peers that do not read for that long, and a rank that computes may be slow to read.
// (Measured: a full receive window and a limit of 2 s, ETIMEDOUT after 2.5 s.)
void set_up_connection(int fd, std::chrono::milliseconds silence_limit) noexcept;

}  // namespace tutti::transport::tcp
