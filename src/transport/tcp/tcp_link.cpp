// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"
#include "transport/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace tutti::transport::tcp {
namespace {

// The first frames of a round leave when they are submitted; the others leave together, by few system calls, in the
// next round. Two: a header and its payload, or a message and its answer, need no round between them.
// A long one is alone: its copy is what starting an operation takes.
constexpr unsigned frames_at_once = 2;
constexpr std::size_t long_frame_bytes = std::size_t{64} * 1024;

}  // namespace

// ---- one connection ----

void connection::prepare(int fd, core::backend& backend) {
  in.open();
  stream_ = std::make_unique<core::socket_stream>(fd);
  watch_ = backend.watch_hot(fd, *this);
  backend_ = &backend;
}

void connection::attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls) noexcept {
  if (tls) stream_ = std::move(tls);
  fd_ = std::move(fd);
  writable = true;
}

void connection::shut(bool abort) noexcept {
  in.stop();
  if (watch_ != 0) backend_->unwatch(std::exchange(watch_, 0));
  if (!fd_) return;
  if (abort) {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  // An io_uring that watched the socket may hold it open a moment longer than close() does.
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
}

void connection::end_writing() noexcept {
  if (fd_ && !std::exchange(ends_writing_, true)) ::shutdown(fd_.get(), SHUT_WR);
}

void connection::on_ready(bool readable, bool is_writable) noexcept {
  if (stands()) of_.serve(*this, readable, is_writable);
}

// ---- the link ----

tcp_link::tcp_link(tcp_transport& owner, int peer)
    : peer_link(owner, peer, phase::idle),
      owner_(owner),
      main_(add_connection()),
      heartbeat_(owner.info().silence_limit) {
  question_.head.kind = frame_kind::heartbeat;
  answer_.head.kind = frame_kind::alive;
}

bool tcp_link::submit(outgoing& f) noexcept {
  if (farewell_queued_ || (at_ == phase::closed && owner_.leaving())) return false;
  if (is_long(f, slice_bytes) && at_ == phase::connected) {
    if (!std::exchange(further_asked_for_, true) && further_wanted() > 0) owner_.connect_further(*this);
    if (connections_.size() > 1) {
      stripes_.push(f);
      ask_all_again();
      return false;
    }
  }
  const bool open = at_ == phase::connected && main_.writable;
  const bool direct =
      open && main_.send_error == 0 && main_.out.empty() && main_.sent_directly < frames_at_once;
  main_.out.push(f);
  if (!direct) {
    if (at_ == phase::idle) {
      owner_.connect(*this);
    } else if (at_ == phase::closed || open) {
      owner_.activate(*this);
    }
    return false;
  }
  main_.sent_directly += payload_bytes(f.head) > long_frame_bytes ? frames_at_once : 1;
  outbox::list left;
  send(main_, left);
  // Nothing else was queued, so a frame that has left is this one.
  return left.pop_front() != nullptr;
}

bool tcp_link::send(connection& c, outbox::list& left) noexcept {
  const outbox::outcome result = c.out.send(c.stream(), bytes_per_turn, left);
  if (result == outbox::outcome::drained) return true;
  if (result == outbox::outcome::blocked) {
    c.writable = false;
    ++counters.stalls;
    return false;
  }
  if (result == outbox::outcome::broken) c.send_error = c.out.error();
  ask_again(c);
  return false;
}

cancel_result tcp_link::cancel(outgoing& f) noexcept {
  const bool striped = stripes_.has(f);
  const std::optional<cancel_result> outcome = striped ? stripes_.cancel(f) : main_.out.cancel(f);
  if (striped) ask_all_again();  // another frame's stripes may be next
  if (!outcome)
    fail(errc::resources,
         fmt::format("out of memory while a message to {} was taken back: the connection was broken off",
                     owner_.describe(peer_)));
  return outcome.value_or(cancel_result::gone);
}

redirect_result tcp_link::redirect_destination(void* owner, const destination_buffer& instead) noexcept {
  bool any = false;
  for (const auto& c : connections_) any |= c->in.redirect(owner, instead);
  return any ? redirect_result::moved : redirect_result::none;
}

bool tcp_link::has_queue() const noexcept {
  return !stripes_.empty() || std::ranges::any_of(connections_, [](const auto& c) { return c->has_queue(); });
}

bool tcp_link::amid_long_payload() const noexcept {
  return std::ranges::any_of(connections_, [](const auto& c) { return c->in.amid_long_payload(); });
}

void tcp_link::attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls) {
  main_.prepare(fd.get(), owner_.backend());
  attach(main_, std::move(fd), std::move(tls), true);
  declined_.reset();
  at_ = phase::connected;
}

void tcp_link::attach(connection& c, base::unique_fd fd, std::unique_ptr<core::tls_session> tls,
                      bool usable) noexcept {
  set_up_connection(fd.get(), owner_.info().silence_limit);
  c.attach(std::move(fd), std::move(tls));
  c.usable = usable;
  if (owner_.leaving()) c.in.mute();
  ask_again(c);
}

// ---- further connections ----

connection& tcp_link::add_connection() {
  return *connections_.emplace_back(
      std::make_unique<connection>(*this, peer_, owner_.up(), owner_.info().checksums));
}

std::size_t tcp_link::further_wanted() const noexcept {
  return owner_.info().tcp_connections - std::min(owner_.info().tcp_connections, connections_.size());
}

std::size_t tcp_link::connections() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(connections_, [](const auto& c) { return c->stands(); }));
}

connection* tcp_link::expect_further(int fd) {
  if (at_ != phase::connected || owner_.leaving() || main_.ended || main_.send_error != 0) return nullptr;
  if (connections_.size() >= stripes::most_connections) return nullptr;
  connection& c = add_connection();
  c.in.take_data_only();
  try {
    c.prepare(fd, owner_.backend());
  } catch (...) {
    drop_further(c);
    throw;
  }
  return &c;
}

void tcp_link::attach_further(connection& c, base::unique_fd fd, std::unique_ptr<core::tls_session> tls,
                              bool usable) noexcept {
  if (at_ == phase::connected) attach(c, std::move(fd), std::move(tls), usable);
}

void tcp_link::drop_further(connection& c) noexcept {
  c.shut(false);
  if (at_ == phase::connected) has_ended(c, 0);
}

void tcp_link::share_out(connection& c) noexcept {
  if (stripes_.empty()) return;
  std::size_t sharing = 0;
  std::optional<std::size_t> number;
  for (std::size_t i = 0; i < connections_.size() && sharing < owner_.info().tcp_connections; ++i) {
    if (!connections_[i]->usable) continue;
    ++sharing;
    if (connections_[i].get() == &c) number = i;
  }
  if (number) stripes_.next(*number, sharing, c.out);
}

void tcp_link::ask_again(connection& c) noexcept {
  c.again = true;
  owner_.activate(*this);
}

void tcp_link::ask_all_again() noexcept {
  for (const auto& c : connections_) ask_again(*c);
}

bool tcp_link::serve(connection& c, bool readable, bool writable) noexcept {
  if (at_ != phase::connected) return false;
  if (writable) c.writable = true;
  bool any = readable && read(c, true);
  if (at_ == phase::connected) any |= write(c);
  return any;
}

bool tcp_link::move() noexcept {
  bool any = false;
  // By index: one more may be expected meanwhile.
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connection& c = *connections_[i];
    const bool again = std::exchange(c.again, false);
    if ((again || !c.out.empty()) && c.stands()) any |= serve(c, again, false);
  }
  return any;
}

bool tcp_link::glance() noexcept {
  // No event reported this: if anything is left, the descriptor will still report it.
  return at_ == phase::connected && read(main_, false);
}

bool tcp_link::read(connection& c, bool told) noexcept {
  c.sent_directly = 0;
  const std::uint64_t before = c.in.received_bytes();
  const inbox::outcome result = c.in.receive(c.stream(), bytes_per_turn);
  if (c.in.received_bytes() != before && at_ == phase::connected) {
    if (&c == &main_) {
      owner_.expect_more(*this);
      if (c.in.take_question()) push(answer_);
    }
    c.usable = true;
  }
  using outcome = inbox::outcome;
  if (result == outcome::malformed) corrupt(c.in.complaint());
  if (result == outcome::broken) has_ended(c, c.in.error());
  // The kernel reports a reset once. If a send was told of it, this looks like an end in order.
  if (result == outcome::ended) has_ended(c, main_.ended ? 0 : c.send_error);
  if (result == outcome::empty && c.send_error != 0) has_ended(c, c.send_error);
  // The descriptor reports changes only: it will not report what is left now again, even the end of the stream.
  if (result == outcome::more || (result == outcome::nearly_empty && told)) ask_again(c);
  return result > outcome::more || c.in.received_bytes() != before;
}

void tcp_link::has_ended(connection& c, int code) noexcept {
  if (code == EBADMSG) return broke(code);
  c.ended = true;
  if (&c == &main_) owner_.expect_nothing(*this);  // otherwise every round would find its end again
  bool all = true;
  for (const auto& each : connections_) {
    if (code != 0) {
      if (each->send_error == 0) each->send_error = code;
      if (!each->stands()) each->ended = true;
      if (!each->ended) ask_again(*each);
    }
    all &= each->ended;
  }
  if (all) broke(code != 0 ? code : main_.send_error);
}

bool tcp_link::refill(connection& c) noexcept {
  share_out(c);
  if (&c == &main_) {
    if (owner_.leaving() && !farewell_queued_ && !has_queue()) {
      // So that a peer that has read the farewell knows that the others are empty.
      for (const auto& each : connections_)
        if (each.get() != &main_) each->end_writing();
      farewell_queued_ = true;
      main_.out.push(farewell_);
    }
  } else if (owner_.leaving() && c.out.empty() && stripes_.empty()) {
    ask_again(main_);
  }
  return !c.out.empty();
}

bool tcp_link::write(connection& c) noexcept {
  c.sent_directly = 0;
  if (!c.writable || c.send_error != 0) return false;
  const std::uint64_t before = c.out.sent_bytes();
  if (!flush(c)) return false;
  while (refill(c)) {
    outbox::list left;
    const bool drained = send(c, left);
    while (outgoing* f = left.pop_front()) f->done(*f, true);
    if (!drained || at_ != phase::connected) break;
  }
  if (farewell_queued_ && at_ == phase::connected) flush(c);
  return c.out.sent_bytes() != before;
}

void tcp_link::push(outgoing& f) noexcept {
  if (f.linked() || owner_.leaving()) return;
  main_.out.push(f);
  ask_again(main_);
}

peer_health tcp_link::examine(const health_check& l) noexcept {
  kernel_view kernel;
  if (at_ != phase::connected || owner_.leaving() || !view_kernel(main_.fd(), kernel)) return {};
  if (!heartbeat_.watched()) watch_closely(main_.fd(), true);
  const heartbeat::finding found = heartbeat_.examine(l, kernel, question_.linked());
  if (found.ask) push(question_);
  return found.health;
}

void tcp_link::rest() noexcept {
  if (heartbeat_.watched() && at_ == phase::connected) watch_closely(main_.fd(), false);
  heartbeat_.rest();
}

// Sends what the stream has taken. Returns false if not all of it has left.
bool tcp_link::flush(connection& c) noexcept {
  if (c.stream().flush() != 0) {
    c.writable = false;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      c.send_error = errno;
      ask_again(c);
    }
    return false;
  }
  // Nothing follows the farewell.
  if (&c == &main_ && farewell_queued_ && c.out.empty()) c.end_writing();
  return true;
}

// Later frames can no longer be told apart.
void tcp_link::corrupt(const char* what) noexcept {
  disconnect(true);
  close(
      errc::protocol,
      fmt::format(
          "corrupt frame from {}: {}; the connection was reset, and nothing of that frame was delivered. If "
          "all ranks are built with the same tutti, suspect the memory or the network hardware of the two "
          "hosts, and set TUTTI_CHECKSUMS=1 on all ranks to have payload checked as well",
          owner_.describe(peer_), what));
}

void tcp_link::broke(int code) noexcept {
  if (code == EBADMSG) return corrupt("TLS finds it changed on the way");
  if (main_.in.heard_leave())
    return close(errc::peer_left, fmt::format("{} has finished and left", owner_.describe(peer_)));
  const std::string who = owner_.describe(peer_);
  if (code == 0 || code == ECONNRESET || code == EPIPE || code == ENOTCONN)
    return close(errc::peer_failed,
                 fmt::format("{} closed the connection without taking leave: it died or was killed; its own "
                             "output and exit code say why",
                             who));
  close(errc::peer_failed,
        fmt::format("the connection to {} broke ({}): its host or the network between has failed", who,
                    base::errno_text(code)));
}

void tcp_link::clear_queues(list& rest) noexcept {
  stripes_.clear(rest);
  for (const auto& c : connections_) c->out.clear(rest);
}

void tcp_link::leave() noexcept {
  for (const auto& c : connections_) c->in.mute();
  if (at_ == phase::connected) return ask_again(main_);
  const bool connects = at_ == phase::connecting || at_ == phase::awaiting;
  if (at_ != phase::idle && (!connects || has_queue())) return;
  attempt_.stop();
  at_ = phase::closed;
}

void tcp_link::disconnect(bool abort) noexcept {
  owner_.expect_nothing(*this);
  // Not destroyed: one of them may be the caller.
  for (const auto& c : connections_) c->shut(abort);
}

}  // namespace tutti::transport::tcp
