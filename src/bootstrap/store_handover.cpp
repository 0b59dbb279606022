// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_handover.hpp"

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

// Any user could connect to an abstract name, or listen at one that the launcher has left.
bool trusted(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

// One byte with room for one descriptor.
struct message : msghdr {
  message() noexcept : msghdr() {
    msg_iov = &part;
    msg_iovlen = 1;
    msg_control = control;
    msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

void send_descriptor(int socket, int fd) noexcept {
  message one;
  cmsghdr* const header = CMSG_FIRSTHDR(&one);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ::sendmsg(socket, &one, MSG_DONTWAIT | MSG_NOSIGNAL);
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
        if (peer && store_ && trusted(peer.get())) send_descriptor(peer.get(), store_.get());
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
  message one;
  const ssize_t got = TEMP_FAILURE_RETRY(::recvmsg(launcher.get(), &one, MSG_CMSG_CLOEXEC));
  if (got < 0) return {};
  const cmsghdr* const header = CMSG_FIRSTHDR(&one);
  base::unique_fd store;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    store.reset(fd);
  }
  if (store && trusted(launcher.get())) return store;
  errno = EPERM;  // the launcher closes the connection to another user
  return {};
}

}  // namespace tutti::bootstrap
