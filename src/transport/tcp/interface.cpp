// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/interface.hpp"

#include "base/unique_fd.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <tutti/error.hpp>

namespace tutti::transport::tcp {
namespace {

namespace ip = boost::asio::ip;

std::optional<ip::address> address_of(const sockaddr* at) {
  if (at == nullptr || (at->sa_family != AF_INET && at->sa_family != AF_INET6)) return std::nullopt;
  ip::tcp::endpoint there;
  std::memcpy(there.data(), at, at->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  const ip::address address = there.address();
  if (address.is_v6() && address.to_v6().is_link_local()) return std::nullopt;
  return address;
}

}  // namespace

std::vector<interface_address> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  std::vector<interface_address> all;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if ((i->ifa_flags & IFF_UP) == 0) continue;
    if (const auto address = address_of(i->ifa_addr)) all.push_back({i->ifa_name, *address});
  }
  return all;
}

ip::address address_of_interface(const std::string& names, bool prefer_v6) {
  const std::vector<interface_address> all = interface_addresses();
  for (std::string_view rest = names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    std::optional<ip::address> found;
    for (const interface_address& each : all) {
      if (each.interface != name) continue;
      if (!found || (each.address.is_v6() == prefer_v6 && found->is_v6() != prefer_v6)) found = each.address;
    }
    if (found) return *found;
  }
  std::vector<std::string> there;
  for (const interface_address& each : all)
    there.push_back(fmt::format("{} ({})", each.interface, each.address.to_string()));
  throw error(
      errc::invalid_argument,
      fmt::format(
          "TUTTI_INTERFACE='{}': this host has no interface of that name that is up and has an address; it "
          "has {}",
          names, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
}

ip::address source_address_towards(const ip::address& to) {
  const ip::tcp::endpoint there(to, 9);
  const base::unique_fd probe(::socket(there.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ip::tcp::endpoint mine;
  auto length = static_cast<socklen_t>(mine.capacity());
  // Connects a UDP socket to find out.
  if (!probe || ::connect(probe.get(), there.data(), static_cast<socklen_t>(there.size())) != 0 ||
      ::getsockname(probe.get(), mine.data(), &length) != 0)
    return {};
  return mine.address();
}

ip::address outward_address() {
  // Reserved for documentation: the route there leads to other hosts.
  for (const char* elsewhere : {"192.0.2.1", "2001:db8::1"}) {
    const ip::address source = source_address_towards(ip::make_address(elsewhere));
    if (!source.is_unspecified() && !source.is_loopback()) return source;
  }
  for (const interface_address& each : interface_addresses())
    if (!each.address.is_loopback()) return each.address;
  return ip::address_v4::loopback();
}

}  // namespace tutti::transport::tcp
