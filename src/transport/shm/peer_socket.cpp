// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_socket.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::transport::shm {
namespace {

// A label, and room for two descriptors behind it.
struct labelled_message : msghdr {
  explicit labelled_message(region_label& label) noexcept : msghdr{}, data{&label, sizeof label} {
    msg_iov = &data;
    msg_iovlen = 1;
    msg_control = control;
    msg_controllen = sizeof control;
  }
  iovec data;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
};

// As in <linux/pidfd.h> of kernels later than most headers: the first version with the exit code.
struct pidfd_info {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t pid, thread_group, parent;
  std::uint32_t users_and_groups[8];
  std::int32_t exit_code;  // as from wait()
};
static_assert(sizeof(pidfd_info) == 64);
constexpr std::uint64_t wants_pid = 1, wants_exit = 8;
constexpr unsigned long get_info = _IOWR(0xFF, 11, pidfd_info);

#ifdef SO_PEERPIDFD
constexpr int peer_pidfd = SO_PEERPIDFD;
#else
constexpr int peer_pidfd = 77;  // asm-generic/socket.h of Linux 6.5
#endif

}  // namespace

// ---- descriptors ----

// All or nothing: so few bytes are sent whole.
bool send_descriptors(int socket, std::span<const int> descriptors, const region_label& label) noexcept {
  region_label content = label;
  labelled_message message(content);
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  const ssize_t sent = TEMP_FAILURE_RETRY(::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
  return sent == static_cast<ssize_t>(sizeof content);
}

passed receive_descriptors(int socket) noexcept {
  passed p;
  labelled_message message(p.label);
  const ssize_t got = TEMP_FAILURE_RETRY(::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return p;
  p.is = passed::outcome::hung_up;
  if (got <= 0) return p;
  p.is = got == static_cast<ssize_t>(sizeof p.label) ? passed::outcome::all : passed::outcome::nonsense;
  p.cut_off = (message.msg_flags & MSG_CTRUNC) != 0;
  std::size_t count = 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= h->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + at, sizeof received);
      base::unique_fd owned(received);  // additional ones are closed
      if (count < p.descriptors.size()) p.descriptors[count++] = std::move(owned);
    }
  }
  return p;
}

std::optional<std::array<base::unique_fd, 2>> receive_pair(int socket) {
  passed p = receive_descriptors(socket);
  if (p.is == passed::outcome::nothing) return std::nullopt;
  if (p.is == passed::outcome::hung_up)
    throw error(errc::peer_failed, "the peer hung up while shared memory was being set up");
  if (p.descriptors[1]) return std::move(p.descriptors);
  if (p.cut_off)
    throw error(errc::resources,
                "this process may open no more descriptors for shared memory; raise `ulimit -n`");
  throw error(errc::protocol, "the peer sent no descriptors");
}

// ---- the process ----

bool same_user(int socket) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

peer_process::peer_process(int socket) noexcept {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, peer_pidfd, &fd, &length) == 0) pidfd_.reset(fd);
}

std::optional<int> peer_process::status() noexcept {
  if (!pidfd_) return std::nullopt;
  pidfd_info info{};
  info.mask = wants_pid | wants_exit;
  const bool told = ::ioctl(pidfd_.get(), get_info, &info) == 0;
  const bool of_this_process =
      (info.mask & wants_pid) != 0 && info.thread_group == static_cast<std::uint32_t>(::getpid());
  const bool ended = told && (info.mask & wants_exit) != 0;
  if (!told || ended || of_this_process) pidfd_.reset();
  return ended ? std::optional<int>(info.exit_code) : std::nullopt;
}

std::string end_text(const std::string& who, std::optional<int> status) {
  if (!status)
    return who +
           " died or was killed: its shared-memory connection hung up; look at its output and at `dmesg`";
  if (!WIFSIGNALED(*status))
    return fmt::format("{} exited with code {} without taking leave: its own output says why", who,
                       WEXITSTATUS(*status));
  const int signal = WTERMSIG(*status);
  const char* const name = ::sigdescr_np(signal);
  return fmt::format(
      "{} died: it was killed by signal {} ({}{}); look at its output{}", who, signal,
      name != nullptr ? name : "of a number without a name", WCOREDUMP(*status) ? ", core dumped" : "",
      signal == SIGKILL ? ", and, if nobody killed it, at `dmesg` for the out-of-memory killer" : "");
}

}  // namespace tutti::transport::shm
