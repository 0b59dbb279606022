// SPDX-License-Identifier: Apache-2.0
// A socket that listens on a port of the loopback interface that the system chooses.
#pragma once

#include "base/unique_fd.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace tutti::test {

// `flags` are further ones of socket().
inline base::unique_fd listening_socket(std::uint16_t& port, int flags = 0) {
  base::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace tutti::test
