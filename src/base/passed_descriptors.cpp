// SPDX-License-Identifier: Apache-2.0
#include "base/passed_descriptors.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::base {
namespace {

// Some bytes, and room for two descriptors behind them.
struct message : msghdr {
  message(void* bytes, std::size_t count) noexcept : msghdr{}, data{bytes, count} {
    msg_iov = &data;
    msg_iovlen = 1;
    msg_control = control;
    msg_controllen = sizeof control;
  }
  iovec data;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
};

}  // namespace

// So few bytes are sent whole.
bool send_descriptors(int socket, std::span<const int> descriptors,
                      std::span<const std::byte> with) noexcept {
  message m(const_cast<std::byte*>(with.data()), with.size());
  m.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&m);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  const ssize_t sent = TEMP_FAILURE_RETRY(::sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
  return sent == static_cast<ssize_t>(with.size());
}

passed_descriptors receive_descriptors(int socket, std::span<std::byte> with, int flags) noexcept {
  passed_descriptors p;
  message m(with.data(), with.size());
  p.bytes = TEMP_FAILURE_RETRY(::recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC));
  if (p.bytes <= 0) return p;
  p.cut_off = (m.msg_flags & MSG_CTRUNC) != 0;
  std::size_t count = 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&m); h != nullptr; h = CMSG_NXTHDR(&m, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= h->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + at, sizeof received);
      unique_fd owned(received);  // additional ones are closed
      if (count < p.descriptors.size()) p.descriptors[count++] = std::move(owned);
    }
  }
  return p;
}

bool same_user(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace tutti::base
