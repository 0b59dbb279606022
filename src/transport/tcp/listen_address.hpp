// SPDX-License-Identifier: Apache-2.0
// Addresses of the TCP transport: where a rank listens, and how peers write that down.
#pragma once

#include "base/unique_fd.hpp"
#include "core/socket_io.hpp"
#include "transport/transport.hpp"

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

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
using core::is_loopback;

// The network interfaces of this host, for the choice of that address.
struct interface_address {
  std::string interface;
  boost::asio::ip::address address;
};

// Addresses of the interfaces that are up, in the kernel's order, without those that are valid only on their
// link.
std::vector<interface_address> interface_addresses();
// Returns an address of one of the interfaces in `names` ("ib0" or "ib0,eth0": the first that has one), an
// IPv6 one with `prefer_v6`. Throws errc::invalid_argument, which lists the interfaces.
boost::asio::ip::address address_of_interface(const std::string& names, bool prefer_v6);
// Returns the address from which packets to other hosts leave, by the default route; otherwise the first that
// is not loopback; otherwise loopback.
boost::asio::ip::address outward_address();

}  // namespace tutti::transport::tcp
