// SPDX-License-Identifier: Apache-2.0
#include "launch/store_socket.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <tutti/error.hpp>
#include <utility>

#include "bootstrap/address.hpp"

namespace tutti::launch {
namespace {

std::string_view cure_of_listening(int error) {
  if (error == EADDRINUSE)
    return ". Another program, perhaps an earlier job, has that port: choose another for --master on all "
           "nodes";
  if (error == EADDRNOTAVAIL)
    return ". That address is not this machine's: start --node-rank 0 on the machine that --master names";
  return error == EACCES ? ". Ports below 1024 are for root: choose a higher one" : "";
}

// Waits for a name that does not resolve yet.
bootstrap::endpoints resolve(const host_and_port& master, std::chrono::milliseconds timeout) {
  try {
    return bootstrap::resolve_host_blocking(master.host, static_cast<std::uint16_t>(master.port),
                                            std::chrono::steady_clock::now() + timeout);
  } catch (const error& e) {
    throw std::runtime_error(fmt::format("--master {}: {}. Give an address of node 0 that all nodes reach",
                                         master.host, e.what()));
  }
}

[[noreturn]] void throw_cannot_listen(const host_and_port& master, int error) {
  throw std::runtime_error(fmt::format("cannot listen on {} port {}: {}{}", master.host, master.port,
                                       std::strerror(error), cure_of_listening(error)));
}

base::unique_fd listen_on_free_port(const boost::asio::ip::address& at, const char* where) {
  if (base::unique_fd fd = bootstrap::listen_at({at, 0})) return fd;
  throw std::runtime_error(fmt::format("cannot listen {}: {}", where, std::strerror(errno)));
}

}  // namespace

base::unique_fd open_store_socket(const std::optional<host_and_port>& master,
                                  std::chrono::milliseconds timeout) {
  if (!master) return listen_on_free_port(boost::asio::ip::address_v4::loopback(), "on 127.0.0.1");
  int error = 0;
  for (const auto& candidate : resolve(*master, timeout)) {
    if (base::unique_fd fd = bootstrap::listen_at(candidate)) return fd;
    error = errno;
  }
  throw_cannot_listen(*master, error);
}

std::vector<base::unique_fd> open_rendezvous_sockets(const host_and_port& master,
                                                     std::chrono::milliseconds timeout) {
  std::vector<base::unique_fd> sockets;
  int error = 0;
  for (const auto& candidate : bootstrap::listening_addresses(master.host, resolve(master, timeout))) {
    base::unique_fd fd = bootstrap::listen_at(candidate);
    const int failure = errno;
    if (fd)
      sockets.push_back(std::move(fd));
    else if (error == 0 || failure == EADDRINUSE)
      error = failure;
  }
  if (sockets.empty() || error == EADDRINUSE) throw_cannot_listen(master, error);
  return sockets;
}

base::unique_fd open_store_socket_beside(const boost::asio::ip::address& rendezvous) {
  return listen_on_free_port(rendezvous, "for the ranks, beside --master");
}

base::unique_fd reserve_port() {
  using boost::asio::ip::tcp;
  for (const tcp::endpoint& any : {tcp::endpoint(tcp::v6(), 0), tcp::endpoint(tcp::v4(), 0)}) {
    base::unique_fd fd(::socket(any.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    constexpr int on = 1, off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // all of IPv4, too
    if (::bind(fd.get(), any.data(), static_cast<socklen_t>(any.size())) == 0) return fd;
  }
  throw std::runtime_error(fmt::format("no port for MASTER_PORT: {}", std::strerror(errno)));
}

int port_of(const base::unique_fd& bound) {
  return bootstrap::local_endpoint(bound.get()).value_or(boost::asio::ip::tcp::endpoint()).port();
}

}  // namespace tutti::launch
