// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/listen_address.hpp"

#include "base/env.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/address.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <vector>

namespace tutti::transport::tcp {
namespace {

namespace ip = boost::asio::ip;

// A listener that is open to other hosts needs authentication.
void check_open(const ip::address& address, const std::string& set_by, bool authenticated) {
  if (!authenticated && !address.is_loopback()) bootstrap::throw_needs_secret(set_by);
}

// Peers connect to an address without its scope.
bool is_link_local(const ip::address& address) { return address.is_v6() && address.to_v6().is_link_local(); }

std::optional<ip::address> address_of(const sockaddr* at) {
  if (at == nullptr || (at->sa_family != AF_INET && at->sa_family != AF_INET6)) return std::nullopt;
  ip::tcp::endpoint there;
  std::memcpy(there.data(), at, at->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  const ip::address address = there.address();
  if (is_link_local(address)) return std::nullopt;
  return address;
}

ip::address explicit_address(const std::string& text) {
  boost::system::error_code code;
  const ip::address address = ip::make_address(text, code);
  if (code || address.is_unspecified() || address.is_multicast())
    base::throw_error(errc::invalid_argument,
                      "TUTTI_ADDRESS='{}' is not the numeric address of one interface of this host (such as "
                      "10.0.0.7 or fd00::7)",
                      text);
  if (is_link_local(address))
    base::throw_error(errc::invalid_argument,
                      "TUTTI_ADDRESS='{}' is a link-local address, which leads here only together with the "
                      "name of an interface of each peer: set it to another address of this host (such as "
                      "fd00::7)",
                      text);
  return address;
}

std::string loopback_like(const ip::address& address) { return address.is_v6() ? "::1" : "127.0.0.1"; }

std::string address_towards(const std::string& host, const bootstrap::endpoints& addresses) {
  boost::system::error_code code;
  const ip::address numeric = ip::make_address(host, code);
  if (!code && bootstrap::is_loopback(numeric)) return loopback_like(numeric);
  bool leads_there = false;
  for (const ip::tcp::endpoint& there : addresses) {
    const ip::address source = bootstrap::source_address_towards(there.address());
    if (source.is_unspecified()) continue;
    leads_there = true;
    if (is_link_local(source)) continue;
    if (!source.is_loopback()) return source.to_string();
    if (host == "localhost") return loopback_like(source);
    break;  // many hosts know their own name as 127.0.1.1 only, while others know their real address
  }
  if (leads_there) return outward_address().to_string();
  base::throw_error(errc::invalid_argument,
                    "no interface of this host leads to '{}', where rank 0 is (MASTER_ADDR): correct it, or "
                    "set TUTTI_INTERFACE or TUTTI_ADDRESS to this host's interface or its numeric address",
                    host);
}

// The parts of a comma-separated list.
std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(list, ',')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

}  // namespace

// ---- the interfaces of this host ----

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
  for (const std::string_view name : split(names)) {
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
  if (there.empty()) there.emplace_back("none");
  base::throw_error(errc::invalid_argument,
                    "TUTTI_INTERFACE='{}': this host has no interface of that name that is up and has an "
                    "address; it has {}",
                    names, fmt::join(there, ", "));
}

ip::address outward_address() {
  if (const ip::address source = bootstrap::source_address_by_default(); !source.is_unspecified())
    return source;
  for (const interface_address& each : interface_addresses())
    if (!each.address.is_loopback()) return each.address;
  return ip::address_v4::loopback();
}

// ---- listening ----

std::string listen_address(const listen_wish& wish) {
  const auto wanted = base::env_string("TUTTI_ADDRESS");
  const auto interface = base::env_string("TUTTI_INTERFACE");
  if (wanted) {
    const ip::address address = explicit_address(*wanted);
    if (interface && std::ranges::none_of(interface_addresses(), [&](const interface_address& each) {
          return each.address == address && std::ranges::count(split(*interface), each.interface) > 0;
        }))
      base::throw_error(errc::invalid_argument,
                        "TUTTI_ADDRESS={} is no address of TUTTI_INTERFACE={}: unset one of them", *wanted,
                        *interface);
    check_open(address, fmt::format("TUTTI_ADDRESS='{}'", *wanted), wish.authenticated);
    return address.to_string();
  }
  if (interface) {
    boost::system::error_code code;
    const ip::address master = ip::make_address(wish.towards.value_or(""), code);
    const ip::address address = address_of_interface(*interface, !code && master.is_v6());
    check_open(address, fmt::format("TUTTI_INTERFACE='{}' ({})", *interface, address.to_string()),
               wish.authenticated);
    return address.to_string();
  }
  if (!wish.authenticated || !wish.towards) return "127.0.0.1";
  return wish.towards->empty() ? outward_address().to_string()
                               : address_towards(*wish.towards, wish.addresses);
}

listener open_listener(const std::string& address) {
  base::unique_fd fd = bootstrap::listen_at({ip::make_address(address), 0});
  const auto at = fd ? bootstrap::local_endpoint(fd.get()) : std::nullopt;
  if (at) return {std::move(fd), core::endpoint_text(core::stream_endpoint(*at))};
  const int failure = errno;
  const errc otherwise = core::out_of_resources(failure) ? errc::resources : errc::system;
  base::throw_error(
      failure == EADDRNOTAVAIL ? errc::invalid_argument : otherwise,
      "cannot listen at {}: {}; set TUTTI_ADDRESS to an address of this host that its peers reach", address,
      base::errno_text(failure));
}

core::stream_endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = std::string_view(text).substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code code;
  const ip::address address = ip::make_address(host, code);
  const auto port =
      base::to_number<unsigned short>(std::string_view(text).substr(std::min(text.size(), colon + 1)));
  if (code || port.value_or(0) == 0)
    base::throw_error(errc::invalid_argument, "'{}' is not a numeric address with a port", text);
  return core::stream_endpoint(ip::tcp::endpoint(address, *port));
}

}  // namespace tutti::transport::tcp
