// SPDX-License-Identifier: Apache-2.0
// The network interfaces of this host, as far as choosing an address to listen at needs them.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

namespace tutti::transport::tcp {

struct interface_address {
  std::string interface;
  boost::asio::ip::address address;
};

// Of the interfaces that are up, in the kernel's order, without addresses that mean nothing beyond their
// link.
std::vector<interface_address> interface_addresses();
// An address of one of the interfaces in `names` ("ib0" or "ib0,eth0": the first that has one), an IPv6 one
// when `prefer_v6`. Throws errc::invalid_argument, which says what there is.
boost::asio::ip::address address_of_interface(const std::string& names, bool prefer_v6);
// The address from which packets to other hosts leave, by the default route, else the first that is not
// loopback; else loopback.
boost::asio::ip::address outward_address();
// The local address of packets to `to`, which may be any; unspecified when nothing leads there. Sends
// nothing.
boost::asio::ip::address source_address_towards(const boost::asio::ip::address& to);

}  // namespace tutti::transport::tcp
