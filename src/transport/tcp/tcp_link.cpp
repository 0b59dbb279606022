// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_link.hpp"

#include "base/text.hpp"
#include "transport/tcp/address.hpp"
#include "transport/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace tutti::transport::tcp {
namespace {

// Moved in one go before the loop gets its turn: bounds how late anything else can be.
constexpr std::size_t bytes_per_turn = std::size_t{1024} * 1024;

}  // namespace

tcp_link::tcp_link(tcp_transport& owner, int peer, inbound& up) noexcept
    : owner_(owner),
      peer_(peer),
      outbox_(owner.info().checksums),
      inbox_(peer, up, owner.info().checksums),
      farewell_(*this),
      pulse_(owner.info().silence_limit) {
  question_.head.kind = frame_kind::pulse;
  answer_.head.kind = frame_kind::alive;
  question_.done = answer_.done = [](outgoing&, bool) noexcept {};
  farewell_.head.kind = frame_kind::leave;
  farewell_.done = [](outgoing& self, bool sent) noexcept {
    auto& last = static_cast<farewell&>(self);
    last.leaves = sent;
    if (sent) last.of.flush();
  };
}

bool tcp_link::submit(outgoing& f) noexcept {
  if (farewell_.queued || (silent_ && at_ == phase::closed)) return false;
  const bool direct = at_ == phase::connected && writable_ && send_error_ == 0 && outbox_.empty();
  outbox_.push(f);
  if (!direct) {
    if (at_ == phase::idle) {
      owner_.connect(*this);
    } else if (at_ == phase::closed || (at_ == phase::connected && writable_)) {
      owner_.activate(*this);
    }
    return false;
  }
  outbox::list left;
  switch (outbox_.send(*stream_, bytes_per_turn, left)) {
    case outbox::outcome::drained:
      break;
    case outbox::outcome::blocked:
      writable_ = false;
      count_stall();
      break;
    case outbox::outcome::more:
      owner_.activate(*this);
      break;
    case outbox::outcome::broken:
      send_error_ = outbox_.error();
      owner_.activate(*this);
      break;
  }
  // Nothing else was queued, so if a frame has left it is this one.
  return left.pop_front() != nullptr;
}

withdrawal tcp_link::withdraw(outgoing& f) noexcept {
  const std::optional<withdrawal> outcome = outbox_.withdraw(f);
  if (!outcome)
    fail(errc::resources, base::words([this] {
           return fmt::format(
               "out of memory while a message to {} was taken back: the connection was broken off",
               owner_.describe(peer_));
         }));
  return outcome.value_or(withdrawal::gone);
}

void tcp_link::attach(base::unique_fd connection, std::unique_ptr<core::tls_session> tls) {
  set_up_connection(connection.get(), owner_.info().silence_limit);
  std::unique_ptr<tls_stream> secured;
  if (tls) secured = std::make_unique<tls_stream>(std::move(tls));
  inbox_.open();
  watch_ = owner_.backend().watch(connection.get(), *this);
  owner_.backend().count_hot(+1);
  socket_ = socket_stream(connection.get());
  stream_ = &socket_;
  if (secured) stream_ = secured.get();
  secured_ = std::move(secured);
  fd_ = std::move(connection);
  declined_.reset();
  at_ = phase::connected;
  writable_ = true;
  owner_.activate(*this);
}

void tcp_link::fail(errc why, std::string text) noexcept {
  if (at_ == phase::failing || at_ == phase::closed) return;
  at_ = phase::failing;
  failure_ = why;
  failure_text_ = std::move(text);
  owner_.activate(*this);
}

void tcp_link::on_ready(bool readable, bool writable) noexcept {
  if (at_ != phase::connected) return;
  if (writable) writable_ = true;
  if (readable) read(true);
  if (at_ == phase::connected) write();
}

bool tcp_link::work() noexcept {
  switch (at_) {
    case phase::connected: {
      bool any = read(true);
      if (at_ == phase::connected) any |= write();
      return any;
    }
    case phase::failing:
      close(failure_, std::move(failure_text_));
      return true;
    case phase::closed:
      if (outbox_.empty()) return false;
      hand_back();
      return true;
    default:
      return false;
  }
}

bool tcp_link::glance() noexcept {
  // Not told of by the descriptor: if this leaves anything, the descriptor will still tell.
  return at_ == phase::connected && read(false);
}

bool tcp_link::read(bool told) noexcept {
  const std::uint64_t before = inbox_.received_bytes();
  const inbox::outcome result = inbox_.receive(*stream_, bytes_per_turn);
  if (inbox_.received_bytes() != before && at_ == phase::connected) {
    owner_.expect_more(*this);
    if (inbox_.take_question()) push(answer_);
  }
  switch (result) {
    case inbox::outcome::stopped:
      return true;
    case inbox::outcome::empty:
      if (send_error_ != 0) broke(send_error_);
      break;
    // The descriptor tells of changes only: what is left now, were it the end of the stream, it will not tell
    // again.
    case inbox::outcome::nearly_empty:
      if (told) owner_.activate(*this);
      break;
    case inbox::outcome::more:
      owner_.activate(*this);
      break;
    case inbox::outcome::ended:
      broke(0);
      return true;
    case inbox::outcome::broken:
      broke(inbox_.error());
      return true;
    case inbox::outcome::malformed:
      corrupt(inbox_.complaint());
      return true;
  }
  return inbox_.received_bytes() != before;
}

bool tcp_link::write() noexcept {
  if (!writable_ || send_error_ != 0) return false;
  const std::uint64_t before = outbox_.sent_bytes();
  if (!flush()) return false;
  for (;;) {
    if (silent_ && outbox_.empty() && !farewell_.queued) queue_farewell();
    if (outbox_.empty()) break;
    outbox::list left;
    const outbox::outcome result = outbox_.send(*stream_, bytes_per_turn, left);
    switch (result) {
      case outbox::outcome::drained:
        break;
      case outbox::outcome::blocked:
        writable_ = false;
        count_stall();
        break;
      case outbox::outcome::more:
        owner_.activate(*this);
        break;
      case outbox::outcome::broken:
        send_error_ = outbox_.error();
        owner_.activate(*this);
        break;
    }
    while (outgoing* f = left.pop_front()) f->done(*f, true);
    if (result != outbox::outcome::drained || at_ != phase::connected) break;
  }
  return outbox_.sent_bytes() != before;
}

void tcp_link::push(outgoing& f) noexcept {
  if (f.linked() || silent_ || farewell_.queued) return;
  outbox_.push(f);
  owner_.activate(*this);
}

vitals tcp_link::examine(const look& l) noexcept {
  kernel_view kernel;
  if (at_ != phase::connected || silent_ || !view_kernel(fd_.get(), kernel)) return {};
  if (!std::exchange(examined_, true)) watch_closely(fd_.get(), true);
  const vitals found = pulse_.examine(l, kernel, question_.linked());
  if (pulse_.to_ask()) {
    push(question_);
    pulse_.asked(l.now);
  }
  return found;
}

void tcp_link::rest() noexcept {
  pulse_.rest();
  if (std::exchange(examined_, false) && at_ == phase::connected) watch_closely(fd_.get(), false);
}

void tcp_link::give_up(errc why, std::string text) noexcept {
  if (at_ == phase::connecting || at_ == phase::awaiting) owner_.stop_connecting(*this);
  if (at_ != phase::accepting) fail(why, std::move(text));
}

// What the stream has taken. False: not all of it has left.
bool tcp_link::flush() noexcept {
  if (stream_->flush() != 0) {
    writable_ = false;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      send_error_ = errno;
      owner_.activate(*this);
    }
    return false;
  }
  // Once: every call of shutdown() makes the descriptor tell something.
  if (std::exchange(farewell_.leaves, false) && fd_) ::shutdown(fd_.get(), SHUT_WR);
  return true;
}

void tcp_link::queue_farewell() noexcept {
  farewell_.queued = true;
  outbox_.push(farewell_);
}

// Nothing that comes after it can be told apart any more.
void tcp_link::corrupt(const char* what) noexcept {
  disconnect(true);
  close(errc::protocol, base::words([&] {
          return fmt::format(
              "corrupt frame from {}: {}; the connection was reset, and nothing of that frame was delivered. "
              "If all "
              "ranks are built with the same tutti, suspect the memory or the network hardware of the two "
              "hosts, and "
              "set TUTTI_CHECKSUMS=1 on all ranks to have payload checked as well",
              owner_.describe(peer_), what);
        }));
}

void tcp_link::broke(int code) noexcept {
  if (code == EBADMSG) return corrupt("TLS finds it changed on the way");
  if (inbox_.heard_leave())
    return close(errc::peer_left, base::words([this] {
                   return fmt::format("{} has finished and left", owner_.describe(peer_));
                 }));
  close(errc::peer_failed, base::words([&] {
          const std::string who = owner_.describe(peer_);
          if (code == 0 || code == ECONNRESET || code == EPIPE || code == ENOTCONN)
            return fmt::format(
                "{} closed the connection without taking leave: it died or was killed; its own output and "
                "exit code "
                "say why",
                who);
          return fmt::format("the connection to {} broke ({}): its host or the network between has failed",
                             who, base::errno_text(code));
        }));
}

void tcp_link::close(errc why, std::string text) noexcept {
  disconnect(false);
  at_ = phase::closed;
  inbox_.stop();
  hand_back();
  if (!silent_) owner_.up().closed(peer_, why, std::move(text));
  owner_.changed();
}

void tcp_link::hand_back() noexcept {
  outbox::list rest;
  outbox_.clear(rest);
  while (outgoing* f = rest.pop_front()) f->done(*f, false);
}

void tcp_link::leave() noexcept {
  silent_ = true;
  inbox_.mute();
  switch (at_) {
    case phase::idle:
      at_ = phase::closed;
      break;
    case phase::connecting:
    case phase::awaiting:
      if (has_queue()) break;
      owner_.stop_connecting(*this);
      at_ = phase::closed;
      break;
    case phase::connected:
      owner_.activate(*this);
      break;
    case phase::accepting:
    case phase::failing:
    case phase::closed:
      break;
  }
}

void tcp_link::drop() noexcept {
  silent_ = true;
  disconnect(false);
  at_ = phase::closed;
  inbox_.stop();
  base::list_hook<active_tag>::unlink();
  hand_back();
}

void tcp_link::cut() noexcept {
  silent_ = true;
  disconnect(true);
  at_ = phase::closed;
  inbox_.stop();
  base::list_hook<active_tag>::unlink();
  outbox::list forgotten;
  outbox_.clear(forgotten);
}

void tcp_link::disconnect(bool abort) noexcept {
  declined_.reset();
  if (!fd_) return;
  owner_.expect_nothing(*this);
  owner_.backend().unwatch(watch_);
  owner_.backend().count_hot(-1);
  if (abort) {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  // An io_uring that watched the socket may hold it open a moment longer than close() does.
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
}

}  // namespace tutti::transport::tcp
