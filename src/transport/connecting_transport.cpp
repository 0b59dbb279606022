// SPDX-License-Identifier: Apache-2.0
#include "transport/connecting_transport.hpp"

#include "base/text.hpp"
#include "core/loop.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <tutti/as_result.hpp>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

// Between attempts to connect.
constexpr auto first_pause = 10ms;
constexpr auto longest_pause = 500ms;

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

}  // namespace

connecting_transport::connecting_transport(core::loop& loop, core::purpose purpose, const char* listener,
                                           core::admission::limits pending)
    : transport(loop),
      acceptor_(loop.context()),
      purpose_(purpose),
      listener_(listener),
      admission_(loop.executor(), pending) {}

void connecting_transport::start(const core::world_info& info, inbound& up, tls_identity tls) {
  tls_ = std::move(tls);
  transport::start(info, up);
  const auto take = [this](core::stream_socket s) { tasks_.start(serve(std::move(s))); };
  accepting_.start(admission_.accept_all(acceptor_, listener_, take), ended, nullptr);
}

void connecting_transport::stop_listening() noexcept {
  accepting_.stop();
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

bool connecting_transport::all_have_closed() noexcept {
  const auto is_open = [](const peer_link* l) { return !l->closed(); };
  // A link whose queue still waits for its connection may need the one that its peer makes.
  const auto is_settled = [](const peer_link* l) { return l->closed() || l->at() == phase::connected; };
  if (std::ranges::all_of(live_, is_settled)) stop_listening();
  return std::ranges::none_of(live_, is_open);
}

// Ends all connecting and accepting where it waits.
void connecting_transport::cut() noexcept {
  leaving_ = true;
  stop_listening();
  tasks_.clear();
  for (peer_link* l : live_) l->attempt_.stop();
  transport::cut();
}

base::unique_fd connecting_transport::take_descriptor(core::stream_socket& socket) {
  boost::system::error_code code;
  const int fd = socket.release(code);
  if (code) throw error(errc::system, fmt::format("cannot take over the connection: {}", code.message()));
  return base::unique_fd(fd);
}

// ---- connecting ----

void connecting_transport::connect(peer_link& l) noexcept {
  l.enter(phase::connecting);
  l.attempt_.start(reach(l), ended, nullptr);
}

task<> connecting_transport::reach(peer_link& l) {
  const core::identity mine{purpose_, info_->id, info_->epoch, info_->rank};
  const core::time_point deadline = core::deadline_after(info_->timeout);
  std::chrono::milliseconds next_pause = first_pause;
  while (l.at() == phase::connecting) {
    setback last;
    try {
      co_await find_record(l, deadline);
      if (l.at() != phase::connecting) co_return;
      core::stream_socket socket = co_await dial(info_->record(l.peer()), deadline);
      last.answered = true;
      socket.secure_with(tls_);
      const core::verdict answer = co_await core::greet(socket, info_->secret, mine, l.peer(), deadline);
      if (answer == core::verdict::accepted) {
        co_await complete(l, socket, deadline);
      } else if (answer == core::verdict::given_up) {
        l.fail(errc::peer_failed,
               fmt::format(
                   "{} has given this rank up, which was stopped or out of its reach for too long: its own "
                   "output says why",
                   describe(l.peer())));
      } else if (l.at() == phase::connecting) {  // not given up meanwhile
        l.enter(phase::awaiting);
        co_await await_peer(l, socket, deadline);
      }
      co_return;
    } catch (const error& e) {
      last.code = static_cast<errc>(e.code().value());
      last.text = e.what();
      last.refused = dynamic_cast<const core::connection_refused*>(&e) != nullptr;
    } catch (const boost::system::system_error& e) {
      last.code = errc::system;
      last.text = e.what();
    }
    if (l.at() != phase::connecting) co_return;
    // A peer that takes a connection and closes it lives. It does so if this side was slow (busy computing), if
    // it has just decided to connect itself, or if it is short of descriptors. All else is final.
    const bool ended_early = last.answered && last.code == errc::peer_failed;
    if (!ended_early || core::clock::now() + next_pause >= deadline) {
      give_up(l, last);
      co_return;
    }
    co_await core::pause(loop_, next_pause);
    ++l.counters.retries;
    next_pause = std::min<std::chrono::milliseconds>(2 * next_pause, longest_pause);
  }
}

// Ends the link if the record cannot be had.
task<> connecting_transport::find_record(peer_link& l, core::time_point deadline) {
  if (info_->peers.find(l.peer()) != nullptr) co_return;
  const result<void> found = co_await as_result(info_->peers.obtain(l.peer(), deadline));
  if (found || l.at() != phase::connecting) co_return;
  const bool late = found.error == errc::timed_out;
  l.fail(
      late ? errc::timed_out : errc::peer_failed,
      fmt::format(
          "no connection to {}: {}{}", describe(l.peer()), found.message,
          late ? fmt::format(" (after {}): allow more time (init_options::timeout, TUTTI_TIMEOUT), or look "
                             "whether the process that serves the store computes or is stopped",
                             base::duration_text(info_->timeout))
               : ": what serves the store (rank 0, tutti-run of node 0 or etcd) has to run as long as "
                 "ranks connect"));
}

// The name and the process of a peer that has connected are for texts, and tell whether it is stopped.
task<> connecting_transport::learn(int peer) {
  const result<void> told =
      co_await as_result(info_->peers.obtain(peer, core::deadline_after(info_->timeout)));
  static_cast<void>(told);
}

// Stopped when the peer's connection comes. Until then the peer keeps the declined one open:
// its end is the peer's.
task<> connecting_transport::await_peer(peer_link& l, core::stream_socket& declined,
                                        core::time_point deadline) {
  setback why;
  why.preferred = true;
  why.text = "it was about to connect itself, and ended before";
  try {
    std::array<std::uint8_t, 1> nothing{};
    co_await core::read_some(declined, nothing, deadline);
  } catch (const error& e) {
    if (e.code() == errc::timed_out) {
      why.code = errc::timed_out;
      why.text = e.what();
      why.answered = true;
    }
  }
  if (l.at() == phase::awaiting) give_up(l, why);
}

// ---- accepting ----

task<> connecting_transport::serve(core::stream_socket socket) {
  if (!may_prove(socket)) co_return;
  socket.secure_with(tls_);
  std::optional<pending_connection> here;
  here.emplace(admission_, socket);
  const std::string from = here->from();
  try {
    co_await converse(socket, here);
  } catch (const error& e) {
    // A connection that ends early does not count as unauthenticated: one of two opened at once does so.
    if (here && here->turned_out())
      unauthenticated_.report(from, "it had not proved who it is when there was no room for others");
    else if (e.code() != errc::peer_failed)
      unauthenticated_.report(from, e.what());
  }
}

task<> connecting_transport::converse(core::stream_socket& socket, std::optional<pending_connection>& here) {
  const core::time_point deadline = here->deadline();
  const core::greeting from =
      co_await core::receive_greeting(socket, info_->secret, purpose_, info_->id, info_->rank, deadline);
  if (from.peer.what != purpose_) {
    co_await serve_other(socket, from, deadline);
    co_return;
  }
  const std::optional<core::verdict> answer = judge(from.peer);
  if (!answer || hung_up(socket.native_handle())) co_return;
  if (*answer != core::verdict::accepted) {
    co_await core::answer_greeting(socket, info_->secret, from, *answer, deadline);
    if (*answer == core::verdict::use_other) at(from.peer.rank).keep_declined(take_descriptor(socket));
    co_return;
  }
  peer_link& l = at(from.peer.rank);
  l.attempt_.stop();
  l.enter(phase::accepting);
  try {
    co_await core::answer_greeting(socket, info_->secret, from, core::verdict::accepted, deadline);
    // It has proved who it is. On a busy machine either side may wait for its processor for seconds, and the
    // peer may have all it needs by then: it would take the end of this connection for that of this rank.
    here.reset();
    // Otherwise the link was given up meanwhile, and the peer sees this connection end.
    if (l.at() == phase::accepting) co_await complete(l, socket, core::deadline_after(info_->timeout));
    if (info_->peers.find(l.peer()) == nullptr) tasks_.start(learn(l.peer()));
  } catch (...) {
    if (l.at() == phase::accepting) {
      l.enter(phase::idle);
      if (l.has_queue())
        connect(l);
      else if (leaving_)
        l.leave();
    }
    throw;
  }
}

std::optional<core::verdict> connecting_transport::judge(const core::identity& peer) {
  if (peer.rank < 0 || peer.rank >= info_->size || peer.rank == info_->rank) return core::verdict::wrong_rank;
  if (peer.epoch != info_->epoch) return core::verdict::wrong_world;
  const phase is = at(peer.rank).at();
  if (leaving_ && (is == phase::idle || is == phase::closed)) return std::nullopt;
  // An attempt of this side that still asks for the record yields to any of the peer's.
  const bool asks = is == phase::connecting && info_->peers.find(peer.rank) == nullptr;
  if (is == phase::idle || is == phase::awaiting || asks) return core::verdict::accepted;
  if (is == phase::failing || is == phase::closed) return core::verdict::given_up;
  if (is != phase::connecting) return core::verdict::duplicate;
  return peer.rank < info_->rank ? core::verdict::accepted : core::verdict::use_other;
}

}  // namespace tutti::transport
