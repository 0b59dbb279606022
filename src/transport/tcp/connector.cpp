// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/connector.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "core/pause.hpp"
#include "transport/tcp/listen_address.hpp"
#include "transport/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

namespace tutti::transport::tcp {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using phase = tcp_link::phase;

constexpr auto first_pause = 10ms;  // between attempts to connect
constexpr auto longest_pause = 1000ms;

core::time_point in(std::chrono::milliseconds d) {
  return d.count() > 0 ? core::clock::now() + d : core::time_point::max();
}

// This endpoint's share of the time that is left.
core::time_point share(core::time_point deadline, std::size_t endpoints_left) {
  if (deadline == core::time_point::max() || endpoints_left <= 1) return deadline;
  const core::time_point now = core::clock::now();
  return now + (deadline - now) / static_cast<core::duration::rep>(endpoints_left);
}

// What is to be handled is handled inside: without memory the process ends.
void ended(void*, std::exception_ptr failure) noexcept {
  if (failure) std::rethrow_exception(failure);
}

// Whether the peer has already closed the connection, as it does when it has given up.
bool hung_up(int fd) noexcept {
  char byte;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

base::unique_fd take_descriptor(core::stream_socket& socket) {
  boost::system::error_code code;
  const int fd = socket.release(code);
  if (code) throw error(errc::system, fmt::format("cannot take over the connection: {}", code.message()));
  return base::unique_fd(fd);
}

}  // namespace

// Why connecting has failed so far.
struct connector::setback {
  errc code = errc::peer_failed;
  std::string text;
  bool answered = false;     // the peer's host took the connection
  bool refused = false;      // the peer's host said that no process listens there
  bool ended_early = false;  // and then the connection ended before the peer's answer

  void add(errc why, const std::string& what, bool took_connection) {
    code = why;
    text += (text.empty() ? "" : "; ") + what;
    answered |= took_connection;
    ended_early |= took_connection && why == errc::peer_failed;
  }
};

connector::connector(core::loop& loop, tcp_transport& owner, base::unique_fd listener)
    : loop_(loop),
      owner_(owner),
      acceptor_(loop.context()),
      admission_(loop.executor()),
      attempts_(static_cast<std::size_t>(owner.info().size)) {
  int family = AF_INET;
  socklen_t length = sizeof family;
  ::getsockopt(listener.get(), SOL_SOCKET, SO_DOMAIN, &family, &length);
  acceptor_.assign(family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), listener.get());
  listener.release();
  const auto take = [this](core::stream_socket s) { handshake_tasks_.start(serve(std::move(s))); };
  accepting_.start(admission_.accept_all(acceptor_, "this rank's TCP port", take), ended, nullptr);
}

// ---- connecting ----

void connector::connect(tcp_link& l) noexcept {
  std::unique_ptr<core::running_task>& attempt = attempts_[static_cast<std::size_t>(l.peer())];
  l.enter(phase::connecting);
  if (!attempt) attempt = std::make_unique<core::running_task>();
  attempt->start(reach(l), ended, &l);
}

void connector::stop_connecting(tcp_link& l) noexcept {
  std::unique_ptr<core::running_task>& attempt = attempts_[static_cast<std::size_t>(l.peer())];
  if (attempt) attempt->stop();
}

task<> connector::reach(tcp_link& l) {
  const core::time_point deadline = in(owner_.info().timeout);
  std::chrono::milliseconds next_pause = first_pause;
  for (;;) {
    setback last;
    std::optional<core::stream_socket> declined;
    co_await try_endpoints(l, deadline, &last, &declined);
    if (l.at() == phase::connected) co_return;
    if (declined) {
      co_await await_peer(l, std::move(*declined), deadline);
      co_return;
    }
    // A peer closes a connection during the handshake if this side was slow (busy computing), or if it has
    // just decided to connect itself: worth another try. All else is final.
    if (!last.ended_early || core::clock::now() + next_pause >= deadline) {
      give_up(l, last);
      co_return;
    }
    co_await core::pause(loop_, next_pause);
    l.count_retry();
    next_pause = std::min<std::chrono::milliseconds>(2 * next_pause, longest_pause);
  }
}

task<> connector::try_endpoints(tcp_link& l, core::time_point deadline, setback* last,
                                std::optional<core::stream_socket>* declined) {
  const core::world_info& info = owner_.info();
  const core::identity mine{core::purpose::tcp_link, info.id, info.epoch, info.rank};
  const std::vector<std::string>& endpoints = info.record(l.peer()).tcp_endpoints;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    bool answered = false;
    try {
      const core::time_point until = share(deadline, endpoints.size() - i);
      const core::stream_endpoint to = parse_endpoint(endpoints[i]);
      core::stream_socket socket = co_await core::connect(loop_.executor(), to, until);
      answered = true;
      socket.secure_with(info.tls);
      l.prepare();
      const core::verdict answer = co_await core::greet(socket, info.secret, mine, l.peer(), until);
      if (answer == core::verdict::accepted) {
        l.attach(take_descriptor(socket), socket.take_tls());
      } else {
        declined->emplace(std::move(socket));
        l.enter(phase::awaiting);
      }
      co_return;
    } catch (const error& e) {
      last->add(static_cast<errc>(e.code().value()), e.what(), answered);
      last->refused |= dynamic_cast<const core::connection_refused*>(&e) != nullptr;
    } catch (const boost::system::system_error& e) {
      last->add(errc::system, e.what(), answered);
    }
  }
  if (endpoints.empty()) last->text = "it has published no address for TCP";
}

void connector::give_up(tcp_link& l, const setback& last) {
  const core::endpoint_record& record = owner_.info().record(l.peer());
  const std::string what = fmt::format("no connection to {}: {}", owner_.describe(l.peer()), last.text);
  const std::string waited = base::duration_text(owner_.info().timeout);
  const std::string elsewhere = fmt::format(
      "the address may be one of an interface that does not lead here: set TUTTI_ADDRESS or "
      "TUTTI_INTERFACE on host {} to an address or interface that this host reaches",
      record.host);
  switch (last.code) {
    case errc::timed_out:
      if (last.answered) {
        l.fail(errc::timed_out,
               fmt::format("{} (after {}): its host takes connections, but the process does not answer: "
                           "it computes without returning to its loop, or is stopped",
                           what, waited));
      } else {
        l.fail(errc::timed_out,
               fmt::format("{} (after {}): a firewall may be in the way, or {}", what, waited, elsewhere));
      }
      break;
    case errc::unauthorized:
    case errc::protocol:
    case errc::resources:
      l.fail(last.code, what);
      break;
    default:
      l.fail(errc::peer_failed, fmt::format("{}; {}, or {}", what,
                                            last.answered || last.refused
                                                ? "most likely its process has gone (its own output says why)"
                                                : "a firewall may be in the way",
                                            elsewhere));
  }
}

task<> connector::await_peer(tcp_link& l, core::stream_socket declined, core::time_point deadline) {
  // stop_connecting() ends this when the peer's connection comes. Until then the peer keeps the declined one
  // open: its end is the peer's.
  core::stream_socket watched = std::move(declined);
  bool gone = false;
  try {
    std::array<std::uint8_t, 1> nothing{};
    co_await core::read_some(watched, nothing, deadline);
    gone = true;
  } catch (const error& e) {
    gone = e.code() != errc::timed_out;
  }
  if (l.at() != phase::awaiting) co_return;
  if (gone) {
    l.fail(
        errc::peer_failed,
        fmt::format(
            "{} was about to connect to this rank, but has ended, or could not reach it: its own output says "
            "why",
            owner_.describe(l.peer())));
    co_return;
  }
  const core::endpoint_record& mine = owner_.info().record(owner_.info().rank);
  l.fail(
      errc::timed_out,
      fmt::format(
          "{} was about to connect to this rank (at {}) when this rank connected to it, but its connection "
          "has not come within {}: a firewall may be in the way, or the address may be one of an interface "
          "that does not lead here: set TUTTI_ADDRESS on host {} to an address that host {} reaches",
          owner_.describe(l.peer()), fmt::join(mine.tcp_endpoints, ", "),
          base::duration_text(owner_.info().timeout), mine.host, owner_.info().record(l.peer()).host));
}

// ---- further connections ----

void connector::connect_further(tcp_link& l) noexcept { further_.start(reach_further(l)); }

task<> connector::reach_further(tcp_link& l) {
  const core::time_point deadline = in(owner_.info().timeout);
  const std::vector<std::string>& endpoints = owner_.info().record(l.peer()).tcp_endpoints;
  for (std::size_t i = 0; i < endpoints.size();) {
    if (l.at() != phase::connected || l.further_wanted() == 0) co_return;
    const core::time_point until = share(deadline, endpoints.size() - i);
    const core::stream_endpoint to = parse_endpoint(endpoints[i]);
    const bool added = co_await add_further(l, to, until);
    if (!added) ++i;
  }
}

task<bool> connector::add_further(tcp_link& l, core::stream_endpoint to, core::time_point deadline) {
  const core::world_info& info = owner_.info();
  const core::identity mine{core::purpose::tcp_further, info.id, info.epoch, info.rank};
  std::string trouble;
  try {
    core::stream_socket socket = co_await core::connect(loop_.executor(), to, deadline);
    socket.secure_with(info.tls);
    co_await core::greet(socket, info.secret, mine, l.peer(), deadline);
    connection* const c = l.expect_further();
    if (c != nullptr) attach_further(l, *c, socket, true);
    co_return c != nullptr;
  } catch (const error& e) {
    trouble = e.what();
  } catch (const boost::system::system_error& e) {
    trouble = e.what();
  }
  base::log(base::log_level::debug,
            fmt::format("no further connection to {}: {}", owner_.describe(l.peer()), trouble));
  co_return false;
}

void connector::attach_further(tcp_link& l, connection& c, core::stream_socket& socket, bool usable) {
  try {
    l.attach_further(c, take_descriptor(socket), socket.take_tls(), usable);
  } catch (...) {
    l.drop_further(c);
    throw;
  }
}

// ---- accepting ----

void connector::stop_listening() noexcept {
  accepting_.stop();
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

task<> connector::serve(core::stream_socket accepted) {
  // Parameters live as long as the frame, which is freed some time after its end; the connection must not.
  core::stream_socket socket = std::move(accepted);
  socket.secure_with(owner_.info().tls);
  const core::admission::pending_connection here(admission_, socket);
  try {
    co_await converse(socket, here.deadline());
  } catch (const error& e) {
    // A connection that ends early is not reported as unauthenticated: peers do that when both sides connect
    // at once.
    if (here.turned_out())
      unauthenticated_.report(here.from(), "it had not proved who it is when there was no room for others");
    else if (e.code() != errc::peer_failed)
      unauthenticated_.report(here.from(), e.what());
  }
}

task<> connector::converse(core::stream_socket& socket, core::time_point deadline) {
  const core::world_info& info = owner_.info();
  const core::greeting from = co_await core::receive_greeting(socket, info.secret, core::purpose::tcp_link,
                                                              info.id, info.rank, deadline);
  if (from.peer.what == core::purpose::tcp_further) {
    co_await take_further(socket, from, deadline);
    co_return;
  }
  const std::optional<core::verdict> answer = judge(from.peer);
  if (!answer || hung_up(socket.native_handle())) co_return;
  if (*answer != core::verdict::accepted) {
    co_await core::answer_greeting(socket, info.secret, from, *answer, deadline);
    if (*answer == core::verdict::use_other) owner_.at(from.peer.rank).keep_declined(take_descriptor(socket));
    co_return;
  }
  tcp_link& l = owner_.at(from.peer.rank);
  stop_connecting(l);
  l.enter(phase::accepting);
  try {
    l.prepare();
    co_await core::answer_greeting(socket, info.secret, from, core::verdict::accepted, deadline);
    // Otherwise the link was given up meanwhile, and the peer sees this connection end.
    if (l.at() == phase::accepting) l.attach(take_descriptor(socket), socket.take_tls());
  } catch (...) {
    abandon_accepting(l);
    throw;
  }
}

// Without a connection to attach it to, the peer gets no answer.
task<> connector::take_further(core::stream_socket& socket, core::greeting from, core::time_point deadline) {
  const core::world_info& info = owner_.info();
  const int rank = from.peer.rank;
  const bool known = rank >= 0 && rank < info.size && rank != info.rank && from.peer.epoch == info.epoch;
  tcp_link* const l = known ? owner_.made(rank) : nullptr;
  connection* const c = l != nullptr ? l->expect_further() : nullptr;
  if (c == nullptr) {
    co_await core::answer_greeting(socket, info.secret, from, core::verdict::duplicate, deadline);
    co_return;
  }
  try {
    co_await core::answer_greeting(socket, info.secret, from, core::verdict::accepted, deadline);
  } catch (...) {
    l->drop_further(*c);
    throw;
  }
  attach_further(*l, *c, socket, false);
}

std::optional<core::verdict> connector::judge(const core::identity& peer) {
  const core::world_info& info = owner_.info();
  if (peer.rank < 0 || peer.rank >= info.size || peer.rank == info.rank) return core::verdict::wrong_rank;
  if (peer.epoch != info.epoch) return core::verdict::wrong_world;
  switch (owner_.at(peer.rank).at()) {
    case phase::idle:
    case phase::awaiting:
      return core::verdict::accepted;
    case phase::connecting:
      return peer.rank < info.rank ? core::verdict::accepted : core::verdict::use_other;
    case phase::closed:
      if (owner_.leaving()) return std::nullopt;
      break;
    case phase::accepting:
    case phase::connected:
    case phase::failing:
      break;
  }
  return core::verdict::duplicate;
}

void connector::abandon_accepting(tcp_link& l) noexcept {
  if (l.at() != phase::accepting) return;
  l.enter(phase::idle);
  if (l.has_queue()) {
    connect(l);
  } else if (owner_.leaving()) {
    l.leave();
  }
}

}  // namespace tutti::transport::tcp
