// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_fixture.hpp"

#include "transport/tcp/listen_address.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace tcp_test {

raw_connection::raw_connection(const std::string& endpoint) {
  const core::stream_endpoint to = tcp::parse_endpoint(endpoint);
  fd_ = tutti::base::unique_fd(::socket(to.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd_.get(), to.data(), static_cast<socklen_t>(to.size())) == 0);
}

void raw_connection::send(const void* data, std::size_t bytes) {
  CHECK(::send(fd_.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
}

bool raw_connection::ended() {
  char sink[4096];
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), sink, sizeof sink, MSG_DONTWAIT);
    if (got > 0) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  }
}

}  // namespace tcp_test
