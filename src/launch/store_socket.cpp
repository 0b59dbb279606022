// SPDX-License-Identifier: Apache-2.0
#include "launch/store_socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace tutti::launch {
namespace {

constexpr int backlog = 4096;

std::string_view cure(int error) {
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

// 0, or errno.
int listen_at(base::unique_fd& fd, const sockaddr* address, socklen_t length) {
  fd.reset(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int yes = 1;  // or the port of a job that just ended could not be used for a minute
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

using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

addresses resolve(const char* host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found); code != 0)
    throw std::runtime_error(
        fmt::format("--master {}: no such host ({}). Give an address of node 0 that all nodes reach",
                    host != nullptr ? host : "", ::gai_strerror(code)));
  return {found, &::freeaddrinfo};
}

[[noreturn]] void throw_cannot_listen(const host_and_port& master, int error) {
  throw std::runtime_error(fmt::format("cannot listen on {} port {}: {}{}", master.host, master.port,
                                       std::strerror(error), cure(error)));
}

bool is_numeric(const std::string& host) {
  in6_addr ignored;
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

bool all_on_loopback(const addrinfo* list) {
  for (; list != nullptr; list = list->ai_next)
    if (!is_loopback(list->ai_addr)) return false;
  return true;
}

}  // namespace

store_socket open_store_socket(const std::optional<host_and_port>& master) {
  if (!master) return at_loopback();
  const addresses found = resolve(master->host.c_str(), master->port, 0);
  store_socket store{{}, *master};
  int error = 0;
  for (const addrinfo* candidate = found.get(); candidate != nullptr; candidate = candidate->ai_next) {
    error = listen_at(store.fd, candidate->ai_addr, candidate->ai_addrlen);
    if (error == 0) return store;
  }
  throw_cannot_listen(*master, error);
}

std::vector<base::unique_fd> open_meeting_sockets(const host_and_port& master) {
  addresses found = resolve(master.host.c_str(), master.port, 0);
  // Many a host knows its own name as 127.0.1.1 only, while the other hosts know its real address.
  if (!is_numeric(master.host) && master.host != "localhost" && all_on_loopback(found.get()))
    found = resolve(nullptr, master.port, AI_PASSIVE);
  std::vector<base::unique_fd> sockets;
  int error = 0;
  for (const addrinfo* candidate = found.get(); candidate != nullptr; candidate = candidate->ai_next) {
    base::unique_fd fd;
    const int failure = listen_at(fd, candidate->ai_addr, candidate->ai_addrlen);
    if (failure == 0)
      sockets.push_back(std::move(fd));
    else if (error == 0 || failure == EADDRINUSE)
      error = failure;
  }
  if (sockets.empty() || error == EADDRINUSE) throw_cannot_listen(master, error);
  return sockets;
}

store_socket open_store_socket_beside(const base::unique_fd& meeting) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  store_socket store;
  int error = ::getsockname(meeting.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? 0 : errno;
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
