// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/descriptor_passing.hpp"

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tutti/error.hpp>

namespace tutti::transport::shm {
namespace {

constexpr std::size_t passed = 2;

union control_buffer {
  cmsghdr aligned;
  char bytes[CMSG_SPACE(passed * sizeof(int))];
};

}  // namespace

bool send_descriptors(int socket, int first, int second) noexcept {
  char byte = 'd';
  iovec data{&byte, 1};
  control_buffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(passed * sizeof(int));
  const int descriptors[passed] = {first, second};
  std::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == 1;
}

std::optional<std::array<base::unique_fd, 2>> receive_descriptors(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
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
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (got <= 0) throw error(errc::peer_failed, "the peer hung up while shared memory was being set up");
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int descriptors[passed] = {-1, -1};
    std::memcpy(descriptors, CMSG_DATA(h), sizeof(int) * (count < passed ? count : passed));
    std::array<base::unique_fd, 2> received{base::unique_fd(descriptors[0]), base::unique_fd(descriptors[1])};
    if (count == passed) return received;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    throw error(errc::resources,
                "this process may open no more descriptors for shared memory; raise `ulimit -n`");
  throw error(errc::protocol, "the peer sent no descriptors");
}

bool send_region(int socket, int fd, const region_label& label) noexcept {
  region_label content = label;
  iovec data{&content, sizeof content};
  control_buffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof content);  // so little goes whole or not at all
}

region_event receive_region(int socket, region_label& label, base::unique_fd& fd) noexcept {
  iovec data{&label, sizeof label};
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
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return region_event::nothing;
  if (got <= 0) return region_event::hung_up;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + i * sizeof(int), sizeof received);
      fd.reset(received);  // of several the last; the others are closed
    }
  }
  return got == static_cast<ssize_t>(sizeof label) ? region_event::region : region_event::nonsense;
}

bool same_user(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace tutti::transport::shm
