// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_process.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

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

void peer_process::read_pid(int socket) noexcept {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, peer_pidfd, &fd, &length) == 0) pidfd_.reset(fd);
}

std::string peer_process::end() noexcept {
  if (!pidfd_) return {};
  pidfd_info info{};
  info.mask = wants_pid | wants_exit;
  const bool told = ::ioctl(pidfd_.get(), get_info, &info) == 0;
  const bool of_this_process =
      (info.mask & wants_pid) != 0 && info.thread_group == static_cast<std::uint32_t>(::getpid());
  if (told && (info.mask & wants_exit) == 0 && !of_this_process) return {};
  pidfd_.reset();
  if (!told || (info.mask & wants_exit) == 0) return {};
  if (WIFSIGNALED(info.exit_code)) {
    const int signal = WTERMSIG(info.exit_code);
    const char* const name = ::sigdescr_np(signal);
    return fmt::format("was killed by signal {} ({}{})", signal,
                       name != nullptr ? name : "of a number without a name",
                       WCOREDUMP(info.exit_code) ? ", core dumped" : "");
  }
  return fmt::format("exited with code {}", WEXITSTATUS(info.exit_code));
}

}  // namespace tutti::transport::shm
