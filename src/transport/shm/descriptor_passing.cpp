// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/descriptor_passing.hpp"

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::transport::shm {
namespace {

constexpr std::size_t most_passed = 2;

union control_buffer {
  cmsghdr aligned;
  char bytes[CMSG_SPACE(most_passed * sizeof(int))];
};

// All or nothing: so few bytes are sent whole.
bool send_with(int socket, iovec data, std::span<const int> descriptors) noexcept {
  control_buffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(data.iov_len);
}

struct arrival {
  ssize_t bytes = 0;     // 0: the peer has hung up, or the socket is broken
  bool nothing = false;  // nothing has come yet
  bool cut_off = false;  // this process may open no more descriptors
  std::size_t count = 0;
  std::array<base::unique_fd, most_passed> descriptors;
};

arrival receive_with(int socket, iovec data) noexcept {
  control_buffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  arrival a;
  a.nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  a.bytes = got < 0 ? 0 : got;
  if (a.bytes == 0) return a;
  a.cut_off = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= h->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + at, sizeof received);
      base::unique_fd owned(received);  // additional ones are closed
      if (a.count < most_passed) a.descriptors[a.count++] = std::move(owned);
    }
  }
  return a;
}

}  // namespace

bool send_descriptors(int socket, int first, int second) noexcept {
  char byte = 'd';
  const int descriptors[] = {first, second};
  return send_with(socket, {&byte, 1}, descriptors);
}

std::optional<std::array<base::unique_fd, 2>> receive_descriptors(int socket) {
  char byte = 0;
  arrival a = receive_with(socket, {&byte, 1});
  if (a.nothing) return std::nullopt;
  if (a.bytes == 0) throw error(errc::peer_failed, "the peer hung up while shared memory was being set up");
  if (a.count == a.descriptors.size()) return std::move(a.descriptors);
  if (a.cut_off)
    throw error(errc::resources,
                "this process may open no more descriptors for shared memory; raise `ulimit -n`");
  throw error(errc::protocol, "the peer sent no descriptors");
}

bool send_region(int socket, int fd, const region_label& label) noexcept {
  region_label content = label;
  return send_with(socket, {&content, sizeof content}, std::span(&fd, 1));
}

region_event receive_region(int socket, region_label& label, base::unique_fd& fd) noexcept {
  arrival a = receive_with(socket, {&label, sizeof label});
  if (a.nothing) return region_event::nothing;
  if (a.bytes == 0) return region_event::hung_up;
  if (a.count > 0) fd = std::move(a.descriptors[a.count - 1]);  // the last of several; the others are closed
  return a.bytes == static_cast<ssize_t>(sizeof label) ? region_event::region : region_event::nonsense;
}

bool same_user(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace tutti::transport::shm
