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
  if (::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), backlog) != 0) return errno;
  return 0;
}

store_socket on_loopback() {
  store_socket store;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int error = listen_at(store.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  socklen_t length = sizeof address;
  if (error == 0 && ::getsockname(store.fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    error = errno;
  if (error != 0)
    throw std::runtime_error(fmt::format("cannot listen on 127.0.0.1: {}", std::strerror(error)));
  store.address = {"127.0.0.1", ntohs(address.sin_port)};
  return store;
}

}  // namespace

store_socket open_store_socket(const std::optional<host_and_port>& master) {
  if (!master) return on_loopback();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code =
          ::getaddrinfo(master->host.c_str(), std::to_string(master->port).c_str(), &hints, &found);
      code != 0)
    throw std::runtime_error(
        fmt::format("--master {}: no such host ({}). Give an address of node 0 that all nodes reach",
                    master->host, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  store_socket store{{}, *master};
  int error = 0;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    error = listen_at(store.fd, candidate->ai_addr, candidate->ai_addrlen);
    if (error == 0) return store;
  }
  throw std::runtime_error(fmt::format("cannot listen on {} port {}: {}{}", master->host, master->port,
                                       std::strerror(error), cure(error)));
}

}  // namespace tutti::launch
