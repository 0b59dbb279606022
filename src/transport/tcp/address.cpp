// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/address.hpp"

#include "base/env.hpp"
#include "base/text.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string_view>

namespace tutti::transport::tcp {
namespace {

namespace ip = boost::asio::ip;

constexpr int backlog = 4096;  // of connections not yet accepted; the kernel's own limit may be lower
constexpr int idle_before_probes_s = 5;
constexpr int between_probes_s = 1;
constexpr int unanswered_probes = 3;

std::string explicit_address(const std::string& text, bool has_secret) {
  boost::system::error_code code;
  const ip::address address = ip::make_address(text, code);
  if (code || address.is_unspecified() || address.is_multicast())
    throw error(
        errc::invalid_argument,
        fmt::format("TUTTI_ADDRESS='{}' is not the numeric address of one interface of this host (such as "
                    "10.0.0.7 or fd00::7)",
                    text));
  if (!has_secret && !address.is_loopback())
    throw error(
        errc::invalid_argument,
        fmt::format(
            "TUTTI_ADDRESS='{}' is open to other hosts, and this job has no secret to tell its ranks from "
            "strangers: set TUTTI_SECRET to the same text on all ranks, or start them with tutti-run, "
            "which makes one",
            text));
  return address.to_string();
}

std::string loopback_like(const ip::address& address) { return address.is_v6() ? "::1" : "127.0.0.1"; }

// The local address of packets to `to`. A UDP socket is connected to find out: nothing is sent. Empty when
// none.
std::string source_address_towards(const addrinfo& to) {
  base::unique_fd probe(::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), to.ai_addr, to.ai_addrlen) != 0) return {};
  ip::tcp::endpoint mine;
  auto length = static_cast<socklen_t>(mine.capacity());
  if (::getsockname(probe.get(), mine.data(), &length) != 0) return {};
  const ip::address address = mine.address();
  return address.is_loopback() ? loopback_like(address) : address.to_string();
}

std::string address_towards(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (code != 0)
    throw error(
        errc::invalid_argument,
        fmt::format(
            "MASTER_ADDR='{}' (port {}) cannot be resolved on this host: {}; set it to rank 0's numeric "
            "address",
            host, port, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    std::string address = source_address_towards(*a);
    if (!address.empty()) return address;
  }
  throw error(
      errc::invalid_argument,
      fmt::format(
          "no interface of this host leads to MASTER_ADDR='{}': correct it, or set TUTTI_ADDRESS to this "
          "host's numeric address",
          host));
}

errc code_for(int failure) noexcept {
  switch (failure) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return errc::resources;
    case EADDRNOTAVAIL:
      return errc::invalid_argument;
    default:
      return errc::system;
  }
}

}  // namespace

std::string listen_address(bool has_secret) {
  if (const auto wanted = base::env_string("TUTTI_ADDRESS")) return explicit_address(*wanted, has_secret);
  const auto master = base::env_string("MASTER_ADDR");
  if (!has_secret || !master) return "127.0.0.1";
  boost::system::error_code code;
  const ip::address numeric = ip::make_address(*master, code);
  if (!code && numeric.is_loopback()) return loopback_like(numeric);
  return address_towards(*master, base::env_string("MASTER_PORT").value_or("9"));
}

listener open_listener(const std::string& address) {
  const ip::tcp::endpoint wanted(ip::make_address(address), 0);
  listener result;
  result.fd =
      base::unique_fd(::socket(wanted.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ip::tcp::endpoint bound;
  auto length = static_cast<socklen_t>(bound.capacity());
  if (!result.fd || ::bind(result.fd.get(), wanted.data(), static_cast<socklen_t>(wanted.size())) != 0 ||
      ::listen(result.fd.get(), backlog) != 0 || ::getsockname(result.fd.get(), bound.data(), &length) != 0) {
    const int failure = errno;
    throw error(
        code_for(failure),
        fmt::format(
            "cannot listen at {}: {}; set TUTTI_ADDRESS to an address of this host that its peers reach",
            address, base::errno_text(failure)));
  }
  result.endpoint = core::endpoint_text(core::stream_endpoint(bound));
  return result;
}

core::stream_endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = std::string_view(text).substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  boost::system::error_code code;
  const ip::address address = ip::make_address(host, code);
  unsigned short port = 0;
  const char* const end = text.data() + text.size();
  const char* const digits = colon == std::string::npos ? end : text.data() + colon + 1;
  const auto parsed = std::from_chars(digits, end, port);
  if (code || parsed.ec != std::errc{} || parsed.ptr != end || port == 0)
    throw error(errc::invalid_argument, fmt::format("'{}' is not a numeric address with a port", text));
  return core::stream_endpoint(ip::tcp::endpoint(address, port));
}

bool is_loopback(const std::string& endpoint) noexcept {
  return endpoint.starts_with("127.") || endpoint.starts_with("[::1]:");
}

void set_up_connection(int fd) noexcept {
  // Each of these may fail without harm.
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle_before_probes_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, between_probes_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, unanswered_probes);
}

}  // namespace tutti::transport::tcp
