// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_socket.hpp"

#include "base/passed_descriptors.hpp"

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

bool send_descriptors(int socket, std::span<const int> descriptors, const region_label& label) noexcept {
  return base::send_descriptors(socket, descriptors, std::as_bytes(std::span(&label, 1)));
}

passed receive_descriptors(int socket) noexcept {
  passed p;
  base::passed_descriptors got =
      base::receive_descriptors(socket, std::as_writable_bytes(std::span(&p.label, 1)), MSG_DONTWAIT);
  if (got.bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return p;
  p.is = got.bytes <= 0                                      ? passed::outcome::hung_up
         : got.bytes == static_cast<ssize_t>(sizeof p.label) ? passed::outcome::all
                                                             : passed::outcome::nonsense;
  p.descriptors = std::move(got.descriptors);
  p.cut_off = got.cut_off;
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
