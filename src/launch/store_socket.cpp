// SPDX-License-Identifier: Apache-2.0
#include "launch/store_socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <tutti/error.hpp>

#include "bootstrap/address.hpp"

namespace tutti::launch {
namespace {

constexpr int backlog = 4096;

std::string_view cure_of_listening(int error) {
  switch (error) {
    case EADDRINUSE:
      return ". Another program, perhaps an earlier job, has that port: choose another for --master on all "
             "nodes";
    case EADDRNOTAVAIL:
      return ". That address is not this machine's: start --node-rank 0 on the machine that --master names";
    case EACCES:
      return ". Ports below 1024 are for root: choose a higher one";
    default:
      return "";
  }
}

// Returns 0, or errno.
int listen_at(base::unique_fd& fd, const sockaddr* address, socklen_t length) {
  fd.reset(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int yes = 1;  // otherwise the port of a job that just ended could not be used for a minute
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address->sa_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);  // IPv4 has a socket of its own
  if (::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), backlog) != 0) return errno;
  return 0;
}

int port_of(const base::unique_fd& fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

store_socket at_loopback() {
  store_socket store;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int error = listen_at(store.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (error != 0)
    throw std::runtime_error(fmt::format("cannot listen on 127.0.0.1: {}", std::strerror(error)));
  store.address = {"127.0.0.1", port_of(store.fd)};
  return store;
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

}  // namespace

store_socket open_store_socket(const std::optional<host_and_port>& master,
                               std::chrono::milliseconds timeout) {
  if (!master) return at_loopback();
  store_socket store{{}, *master};
  int error = 0;
  for (const auto& candidate : resolve(*master, timeout)) {
    error = listen_at(store.fd, candidate.data(), static_cast<socklen_t>(candidate.size()));
    if (error == 0) return store;
  }
  throw_cannot_listen(*master, error);
}

std::vector<base::unique_fd> open_rendezvous_sockets(const host_and_port& master,
                                                     std::chrono::milliseconds timeout) {
  bootstrap::endpoints found = resolve(master, timeout);
  // Many hosts know their own name as 127.0.1.1 only, while others know their real address.
  if (!bootstrap::is_numeric(master.host) && master.host != "localhost" &&
      std::ranges::all_of(found, [](const auto& at) { return bootstrap::is_loopback(at.address()); }))
    found = bootstrap::every_address(static_cast<std::uint16_t>(master.port));
  std::vector<base::unique_fd> sockets;
  int error = 0;
  for (const auto& candidate : found) {
    base::unique_fd fd;
    const int failure = listen_at(fd, candidate.data(), static_cast<socklen_t>(candidate.size()));
    if (failure == 0)
      sockets.push_back(std::move(fd));
    else if (error == 0 || failure == EADDRINUSE)
      error = failure;
  }
  if (sockets.empty() || error == EADDRINUSE) throw_cannot_listen(master, error);
  return sockets;
}

store_socket open_store_socket_beside(const base::unique_fd& rendezvous) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  store_socket store;
  int error =
      ::getsockname(rendezvous.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? 0 : errno;
  // The port is at the same place in the addresses of both families.
  reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  if (error == 0) error = listen_at(store.fd, reinterpret_cast<const sockaddr*>(&address), length);
  if (error != 0)
    throw std::runtime_error(
        fmt::format("cannot listen for the ranks, beside --master: {}", std::strerror(error)));
  store.address.port = port_of(store.fd);
  return store;
}

bool on_loopback(const base::unique_fd& listening) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
         is_loopback(reinterpret_cast<const sockaddr*>(&address));
}

}  // namespace tutti::launch
