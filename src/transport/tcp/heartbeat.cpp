// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/heartbeat.hpp"

#include <algorithm>
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

void heartbeat::asked(core::time_point now) noexcept {
  to_ask_ = false;
  if (unanswered_++ > 0) return;
  asked_ = true;
  asked_at_ = counted_from_ = now;
  has_left_ = false;
  arrives_with_ = 0;
}

peer_health heartbeat::host(const health_check& l, const kernel_view& kernel) noexcept {
  if (limit_.count() == 0) return {};
  // Data that left after the last sign of life ask a question; older data have been answered by that sign.
  // Linux answers probes twice a second at most: of those for room, which start closer together, one may be
  // skipped. (Data that cannot leave although there is room have met a dead interface or route of this host.)
  const unsigned enough = kernel.held > 0 && !kernel.room ? 2 : 1;
  const bool owes = kernel.probes >= enough || (kernel.in_flight && kernel.sent_quiet < kernel.quiet);
  if (!owes) {
    owes_ = false;
    return {};
  }
  if (!owes_ || l.now - kernel.quiet > owes_since_) owes_since_ = l.now;
  owes_ = true;
  const core::duration quiet = std::min(kernel.quiet, l.now - began_);
  const core::duration patience =
      kernel.probes >= enough ? std::min<core::duration>(limit_ / 3, period(limit_)) : limit_ / 3;
  if (quiet + period(limit_) < limit_ || l.now - owes_since_ < patience) return {};
  return {condition::unresponsive, quiet};
}

peer_health heartbeat::examine(const health_check& l, const kernel_view& kernel,
                               bool waiting_to_leave) noexcept {
  if (!watched_ || l.again) {
    // Checks start one period after the wait.
    began_ = l.now - (watched_ ? core::duration::zero() : std::min(kernel.quiet, period(limit_)));
    watched_ = true;
    owes_ = asked_ = false;
    unanswered_ = 0;
  }
  const peer_health unresponsive = host(l, kernel);
  if (unresponsive.is == condition::unresponsive) return unresponsive;
  const std::uint64_t before = std::exchange(acknowledged_, kernel.acknowledged);
  if (asked_ && kernel.data_quiet <= l.now - asked_at_ + coarse) {
    asked_ = false;
    unanswered_ = 0;
  }
  const bool may_ask = !waiting_to_leave && (l.loop || limit_ < keepalive_will_do);
  if (!asked_) {
    to_ask_ = may_ask && kernel.data_quiet >= recently;
    return {condition::well, {}};
  }
  if (!waiting_to_leave && !has_left_) {
    has_left_ = true;
    arrives_with_ = kernel.acknowledged + kernel.held;
  }
  // Behind data for a slow network or a slow reader, the question takes a while to arrive.
  const bool arrived = has_left_ && kernel.acknowledged >= arrives_with_;
  if (!arrived && kernel.acknowledged != before) counted_from_ = l.now;
  to_ask_ = may_ask && limit_.count() > 0 && limit_ < keepalive_will_do && unanswered_ < most_unanswered;
  return {condition::not_answering, l.now - counted_from_};
}

}  // namespace tutti::transport::tcp
