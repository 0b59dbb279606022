// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this host, for the choice of an address to listen at.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

namespace tutti::transport::tcp {

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
// Returns the local address of packets to `to`; unspecified if nothing leads there. Sends nothing.
boost::asio::ip::address source_address_towards(const boost::asio::ip::address& to);

}  // namespace tutti::transport::tcp
