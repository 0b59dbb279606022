// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/heartbeat.hpp"

// The kernel's own header: that of glibc 2.36 lacks what was added to tcp_info since 2.6.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti::transport::tcp {
namespace {

using namespace std::chrono_literals;
using condition = peer_health::condition;

// A stopped peer goes unnoticed for at most twice that, plus the way there and back.
constexpr core::duration longest_period = 450ms;
// A peer from which data came this recently need not be asked.
constexpr core::duration recently = 50ms;
// The kernel's clock of connections is coarse.
constexpr core::duration coarse = 20ms;
// Keepalive asks an idle host, in whole seconds. Only if that is too slow, the loop is asked again before it
// has answered: frames that it does not read must not fill its window.
constexpr auto keepalive_will_do = 3000ms;
constexpr unsigned most_unanswered = 512;

}  // namespace

core::duration heartbeat::period(std::chrono::milliseconds limit) noexcept {
  return limit.count() > 0 ? std::min<core::duration>(longest_period, limit / 5) : longest_period;
}

peer_health heartbeat::host(const health_check& l, const kernel_view& kernel) noexcept {
  if (limit_.count() == 0) return {};
  // Data that left after the last sign of life ask a question; older data have been answered by that sign.
  // Linux answers probes twice a second at most: of those for room, which start closer together, one may be
  // skipped. (Data that cannot leave although there is room have met a dead interface or route of this host.)
  const unsigned enough = kernel.held > 0 && !kernel.room ? 2 : 1;
  const bool owes = kernel.probes >= enough || (kernel.in_flight && kernel.sent_quiet < kernel.quiet);
  if (!owes) {
    owes_since_.reset();
    return {};
  }
  if (!owes_since_ || l.now - kernel.quiet > *owes_since_) owes_since_ = l.now;
  const core::duration quiet = std::min(kernel.quiet, l.now - began_);
  const core::duration patience =
      kernel.probes >= enough ? std::min<core::duration>(limit_ / 3, period(limit_)) : limit_ / 3;
  if (quiet + period(limit_) < limit_ || l.now - *owes_since_ < patience) return {};
  return {condition::unresponsive, quiet};
}

heartbeat::finding heartbeat::examine(const health_check& l, const kernel_view& kernel,
                                      bool waiting_to_leave) noexcept {
  if (!watched_ || l.again) {
    // Checks start one period after the wait.
    began_ = l.now - (watched_ ? core::duration::zero() : std::min(kernel.quiet, period(limit_)));
    watched_ = true;
    owes_since_.reset();
    unanswered_ = 0;
  }
  const peer_health unresponsive = host(l, kernel);
  if (unresponsive.is == condition::unresponsive) return {unresponsive};
  const std::uint64_t before = std::exchange(acknowledged_, kernel.acknowledged);
  if (kernel.data_quiet <= l.now - asked_at_ + coarse) unanswered_ = 0;
  const bool may_ask = !waiting_to_leave && (l.loop || limit_ < keepalive_will_do);
  if (unanswered_ == 0) {
    const bool ask = may_ask && kernel.data_quiet >= recently;
    if (ask) {
      unanswered_ = 1;
      asked_at_ = counted_from_ = l.now;
      arrives_with_.reset();
    }
    return {{condition::well, {}}, ask};
  }
  if (!waiting_to_leave && !arrives_with_) arrives_with_ = kernel.acknowledged + kernel.held;
  // Behind data for a slow network or a slow reader, the question takes a while to arrive.
  const bool arrived = arrives_with_ && kernel.acknowledged >= *arrives_with_;
  if (!arrived && kernel.acknowledged != before) counted_from_ = l.now;
  const bool ask =
      may_ask && limit_.count() > 0 && limit_ < keepalive_will_do && unanswered_ < most_unanswered;
  if (ask) ++unanswered_;
  return {{condition::not_answering, l.now - counted_from_}, ask};
}

// ---- the kernel ----

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
