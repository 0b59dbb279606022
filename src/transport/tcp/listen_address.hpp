// SPDX-License-Identifier: Apache-2.0
// Addresses of the TCP transport: where a rank listens, how its peers write that down, and how sockets are
// set up.
#pragma once

#include "base/unique_fd.hpp"
#include "core/socket_io.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <string>

namespace tutti::transport::tcp {

// The numeric address at which peers can reach this process.
//   TUTTI_ADDRESS where set; else an address of the interface that TUTTI_INTERFACE names; else loopback where
//   there is no secret or no other host is wished for; else the address of the interface that leads to where
//   the ranks meet.
// Throws errc::invalid_argument, naming the variable: TUTTI_ADDRESS is no numeric address of one interface,
// there is no interface TUTTI_INTERFACE, they contradict each other, they are not loopback although there is
// no secret; or nothing leads to the rendezvous point.
std::string listen_address(const listen_wish& wish);

struct listener {
  base::unique_fd fd;    // non-blocking
  std::string endpoint;  // "127.0.0.1:4711", "[::1]:4711"
};
// A listener at a free port of `address`. Throws errc::invalid_argument when this host has no such address,
// else errc::resources or errc::system.
listener open_listener(const std::string& address);

// "127.0.0.1:4711" or "[::1]:4711" as an address to connect to. Throws errc::invalid_argument.
core::stream_endpoint parse_endpoint(const std::string& text);
bool is_loopback(const std::string& endpoint) noexcept;

// Options of a connected socket. No Nagle: frames leave as they are. Keepalive finds out in some 8 s that an
// idle peer's host has gone, also when nobody waits for it (see heartbeat.hpp for when somebody does).
// TCP_USER_TIMEOUT stays unset although it would bound the wait for an acknowledgement: it also ends
// connections to peers that are alive but do not read for that long (measured: a full receive window and a
// limit of 2 s, ETIMEDOUT after 2.5 s), and a rank that computes may well be slow to read.
void set_up_connection(int fd, std::chrono::milliseconds silence_limit) noexcept;

}  // namespace tutti::transport::tcp
