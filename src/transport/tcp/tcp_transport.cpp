// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "transport/tcp/listen_address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::transport::tcp {
namespace {

constexpr std::chrono::milliseconds says_unanswered_after(3000);

void say_unanswered(void* record) noexcept {
  const auto& to = *static_cast<const core::endpoint_record*>(record);
  base::log_warning(fmt::format(
      "no answer yet from {}, where the rank with pid {} on host {} listens: the host may have failed, a "
      "firewall or a network namespace may be in the way, or the address may be one of an interface that "
      "does not lead here: set TUTTI_ADDRESS or TUTTI_INTERFACE on host {}; trying until the timeout",
      to.tcp_endpoint, to.pid, to.host, to.host));
}

// A round takes a third of a microsecond or more: this is about as long as a loop spins.
constexpr unsigned rounds_expected = 200;

}  // namespace

tcp_transport::tcp_transport(core::loop& loop)
    : connecting_transport(loop, core::purpose::tcp_link, "this rank's TCP port", core::admission::limits()) {
}

void tcp_transport::listen(core::endpoint_record& mine, const listen_wish& wish) {
  listener opened = open_listener(listen_address(wish));
  acceptor_.assign(parse_endpoint(opened.endpoint).protocol(), opened.fd.get());
  opened.fd.release();
  mine.tcp_endpoint = std::move(opened.endpoint);
}

void tcp_transport::open(const core::world_info& info, inbound& up) {
  loop_.backend();  // before this in the engine's order: its events are handled in the same round
  start(info, up, info.tls);
}

bool tcp_transport::reaches(const core::endpoint_record& mine,
                            const core::endpoint_record& peer) const noexcept {
  return !peer.tcp_endpoint.empty() &&
         (!is_loopback(peer.tcp_endpoint) || core::share_loopback(mine.host_id, peer.host_id));
}

void tcp_transport::expect_more(tcp_link& l) noexcept {
  auto known = std::ranges::find(expected_, &l, &expected::from);
  if (known == expected_.end()) {
    // A free place, or that of the link from which nothing has come for longest.
    known = std::ranges::min_element(expected_, {},
                                     [](const expected& e) { return e.from == nullptr ? 0 : e.latest; });
    if (known->from == nullptr) ++expecting_;
    *known = expected{&l, 0, 0};
    loop_.backend().set_glanced_at(true);
  }
  known->latest = round_;
  const auto index = static_cast<std::size_t>(known - expected_.begin());
  expected_[latest_].next = index;
  latest_ = index;
}

void tcp_transport::expect_nothing(tcp_link& l) noexcept {
  const auto known = std::ranges::find(expected_, &l, &expected::from);
  if (known == expected_.end()) return;
  known->from = nullptr;
  if (--expecting_ == 0) loop_.backend().set_glanced_at(false);
}

bool tcp_transport::glance_at(expected& e) noexcept {
  tcp_link* const l = e.from;
  if (l->glance()) return true;
  loop_.note_system_call();
  if (e.from == l && round_ - e.latest >= rounds_expected) expect_nothing(*l);
  return false;
}

bool tcp_transport::glance() noexcept {
  if (expecting_ == 0) return false;
  ++round_;
  // The rest of a long payload is better read in large parts.
  const auto is_long = [](const expected& e) { return e.from != nullptr && e.from->amid_long_payload(); };
  const bool amid_long = std::ranges::any_of(expected_, is_long);
  loop_.backend().set_glanced_at(!amid_long);
  if (amid_long) return false;
  expected& likely = expected_[expected_[latest_].next];
  bool any = likely.from != nullptr && glance_at(likely);
  // In turn the others.
  for (std::size_t i = 0; i < most_expected; ++i) {
    turn_ = (turn_ + 1) % most_expected;
    expected& e = expected_[turn_];
    if (e.from == nullptr || &e == &likely) continue;
    any |= glance_at(e);
    break;
  }
  return any;
}

bool tcp_transport::poll() noexcept {
  const bool any_come = glance();
  return work_active() || any_come;
}

// ---- connecting ----

task<core::stream_socket> tcp_transport::dial(const core::endpoint_record& to, core::time_point deadline) {
  if (to.tcp_endpoint.empty()) throw error(errc::peer_failed, "it has published no address for TCP");
  // A refusal comes at once. Where packets are dropped, nothing comes until the deadline.
  core::timer unanswered(&say_unanswered, const_cast<core::endpoint_record*>(&to));
  loop_.engine().timers().arm(
      unanswered, core::clock::now() + std::min(says_unanswered_after, core::time_left(deadline) / 10));
  loop_.wake();
  co_return co_await core::connect(loop_.executor(), parse_endpoint(to.tcp_endpoint), deadline);
}

task<> tcp_transport::complete(peer_link& l, core::stream_socket& socket, core::time_point) {
  static_cast<tcp_link&>(l).attach(take_descriptor(socket), socket.take_tls());
  co_return;
}

void tcp_transport::give_up(peer_link& l, const setback& last) {
  const core::endpoint_record& record = info_->record(l.peer());
  const std::string who = describe(l.peer());
  const std::string waited = base::duration_text(info_->timeout);
  if (last.preferred) {
    const core::endpoint_record& mine = info_->record(info_->rank);
    if (last.code != errc::timed_out)
      return l.fail(errc::peer_failed, who +
                                           " was about to connect to this rank, but has ended, or could not "
                                           "reach it: its own output says why");
    return l.fail(
        errc::timed_out,
        fmt::format(
            "{} was about to connect to this rank (at {}) when this rank connected to it, but its connection "
            "has not come within {}: a firewall may be in the way, or the address may be one of an interface "
            "that does not lead here: set TUTTI_ADDRESS on host {} to an address that host {} reaches",
            who, mine.tcp_endpoint, waited, mine.host, record.host));
  }
  std::string text = fmt::format("no connection to {}: {}", who, last.text);
  const std::string elsewhere = fmt::format(
      "the address may be one of an interface that does not lead here: set TUTTI_ADDRESS or "
      "TUTTI_INTERFACE on host {} to an address or interface that this host reaches",
      record.host);
  if (last.code == errc::timed_out)
    text += fmt::format(" (after {}): {}", waited,
                        last.answered
                            ? "its host takes connections, but the process does not answer: it "
                              "computes without returning to its loop, or is stopped"
                            : "its host may have failed, a firewall may be in the way, or " + elsewhere);
  const bool kept = last.code == errc::timed_out || last.code == errc::unauthorized ||
                    last.code == errc::protocol || last.code == errc::resources;
  if (!kept)
    text += fmt::format("; {}, or {}",
                        last.answered || last.refused
                            ? "most likely its process has gone (its own output says why)"
                            : "a firewall may be in the way",
                        elsewhere);
  l.fail(kept ? last.code : errc::peer_failed, std::move(text));
}

// ---- further connections ----

void tcp_transport::connect_further(tcp_link& l) noexcept { tasks_.start(reach_further(l)); }

task<> tcp_transport::reach_further(tcp_link& l) {
  const core::identity mine{core::purpose::tcp_further, info_->id, info_->epoch, info_->rank};
  const core::time_point deadline = core::deadline_after(info_->timeout);
  try {
    while (l.at() == phase::connected && l.further_wanted() > 0) {
      core::stream_socket socket = co_await dial(info_->record(l.peer()), deadline);
      socket.secure_with(info_->tls);
      co_await core::greet(socket, info_->secret, mine, l.peer(), deadline);
      connection* const made = l.expect_further(socket.native_handle());
      if (made == nullptr) co_return;
      l.attach_further(*made, take_descriptor(socket), socket.take_tls(), true);
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    base::log(base::log_level::debug,
              fmt::format("no further connection to {}: {}", describe(l.peer()), e.what()));
  }
}

task<> tcp_transport::serve_other(core::stream_socket& socket, core::greeting from,
                                  core::time_point deadline) {
  const int rank = from.peer.rank;
  const bool known =
      rank >= 0 && rank < info_->size && rank != info_->rank && from.peer.epoch == info_->epoch;
  auto* const l = known ? static_cast<tcp_link*>(made_link(rank)) : nullptr;
  // As many as this rank itself would make: the memory of each is this rank's.
  const bool wanted = l != nullptr && l->further_wanted() > 0;
  connection* const c = wanted ? l->expect_further(socket.native_handle()) : nullptr;
  if (c == nullptr) {
    co_await core::answer_greeting(socket, info_->secret, from, core::verdict::duplicate, deadline);
    co_return;
  }
  try {
    co_await core::answer_greeting(socket, info_->secret, from, core::verdict::accepted, deadline);
  } catch (...) {
    l->drop_further(*c);
    throw;
  }
  l->attach_further(*c, take_descriptor(socket), socket.take_tls(), false);
}

}  // namespace tutti::transport::tcp
