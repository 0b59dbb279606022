// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/kernel_view.hpp"

// The kernel's own header: that of glibc 2.36 lacks what was added to tcp_info since 2.6.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace tutti::transport::tcp {
namespace {

using std::chrono::milliseconds;

constexpr int idle_before_probes_s = 5;
constexpr int idle_before_probes_watched_s = 1;
constexpr int between_probes_s = 1;
constexpr int fewest_unanswered_probes = 3;
// TCP_RTO_MAX_MS of Linux 6.15; older kernels refuse it.
constexpr int longest_retransmission_timeout = 44;

void set(int fd, int level, int option, int value) noexcept {
  // Each of these may fail without harm.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

// The kernel starts with a window of 64 KiB and widens it as the reader needs. That never happens if the
// reader is quick, as on loopback. Ranks that share a core then wait for each other's turn at every 64 KiB of
// a message (perf/NOTES.md). From Linux 5.14 on the kernel can be told to widen it from here on.
void set_up_receive_buffer(int fd) noexcept {
  int locked = 0;
  socklen_t size = sizeof locked;
  if (::getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &size) != 0) return;
  set(fd, SOL_SOCKET, SO_RCVBUF, 512 * 1024);
  set(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
}

}  // namespace

bool view_kernel(int fd, kernel_view& view) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  if (length < offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked) return false;
  int held = 0;
  if (::ioctl(fd, SIOCOUTQ, &held) != 0) return false;
  view.data_quiet = milliseconds(info.tcpi_last_data_recv);
  view.quiet = std::min(view.data_quiet, core::duration(milliseconds(info.tcpi_last_ack_recv)));
  view.sent_quiet = milliseconds(info.tcpi_last_data_sent);
  view.acknowledged = info.tcpi_bytes_acked;
  view.held = static_cast<std::uint64_t>(std::max(held, 0));
  view.in_flight = info.tcpi_unacked > 0;
  view.room = length >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd && info.tcpi_snd_wnd > 0;
  view.probes = info.tcpi_probes;
  return true;
}

void watch_closely(int fd, bool closely) noexcept {
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, closely ? idle_before_probes_watched_s : idle_before_probes_s);
}

void set_up_connection(int fd, milliseconds limit) noexcept {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_up_receive_buffer(fd);
  const auto seconds = static_cast<int>(std::clamp<std::int64_t>(limit.count() / 1000, 0, 120));
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_before_probes_s);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, between_probes_s);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(fewest_unanswered_probes, seconds));
  // Otherwise the pauses between probes of a silent or full peer grow up to two minutes. So would the time
  // until its end is known.
  set(fd, IPPROTO_TCP, longest_retransmission_timeout, std::clamp(seconds * 1000 / 3, 1000, 30'000));
}

}  // namespace tutti::transport::tcp
