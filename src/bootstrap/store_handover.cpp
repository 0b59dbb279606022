// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_handover.hpp"

#include "base/passed_descriptors.hpp"
#include "core/socket_io.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/system/error_code.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr int backlog = 16;
constexpr time_t patience_seconds = 10;  // with a launcher that is stopped

// Abstract: no file is left behind, and the socket is where the port is, in this network namespace.
socklen_t make_address(const std::string& name, sockaddr_un& address) noexcept {
  address = {};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return 0;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

store_handover::store_handover(boost::asio::io_context& loop, const base::unique_fd& store)
    : store_(store), listener_(loop) {
  base::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address.sun_family;  // no name: the kernel chooses one
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (!fd || ::bind(fd.get(), at, length) != 0 || ::listen(fd.get(), backlog) != 0) return;
  length = sizeof address;
  if (::getsockname(fd.get(), at, &length) != 0) return;
  listener_.assign(fd.release());
  name_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  serve_next();
}

void store_handover::serve_next() {
  listener_.async_wait(
      boost::asio::posix::descriptor_base::wait_read, [this](const boost::system::error_code& ended) {
        if (ended) return;
        const base::unique_fd peer(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer && core::out_of_resources(errno)) return;  // it would be asked again at once
        // Any user could connect to an abstract name, or listen at one that the launcher has left.
        constexpr std::byte sign[1] = {};
        if (const int fd = store_.get(); peer && store_ && base::same_user(peer.get()))
          base::send_descriptors(peer.get(), {&fd, 1}, sign);
        serve_next();
      });
}

base::unique_fd take_over_store(const std::string& name) noexcept {
  sockaddr_un address;
  const socklen_t length = make_address(name, address);
  const base::unique_fd launcher(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{patience_seconds, 0};
  ::setsockopt(launcher.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!launcher || ::connect(launcher.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return {};
  std::byte sign[1];
  base::passed_descriptors got = base::receive_descriptors(launcher.get(), sign, 0);
  if (got.bytes < 0) return {};
  if (got.descriptors[0] && base::same_user(launcher.get())) return std::move(got.descriptors[0]);
  errno = EPERM;  // the launcher closes the connection to another user
  return {};
}

}  // namespace tutti::bootstrap
