// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_link.hpp"

#include "base/little_endian.hpp"
#include "base/text.hpp"
#include "bootstrap/acceptor.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/connect_retry.hpp"
#include "bootstrap/message_stream.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int probes = 4;

// Makes the kernel probe the other side's kernel, and give up data that were sent in vain.
void watch(core::stream_socket& socket, silence_limit silence) {
  const auto all = silence.at_most.count();
  const int interval = static_cast<int>(std::max<std::int64_t>(1, all / 1000 / probes));
  const auto patience = static_cast<unsigned>(std::max<std::int64_t>(1000, all));
  const int on = 1;
  const int fd = socket.native_handle();
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
}

}  // namespace

struct control_link::impl {
  impl(core::stream_socket socket, silence_limit silence)
      : name(core::peer_text(socket)), stream(std::move(socket)) {
    watch(stream.socket(), silence);
  }

  task<> read() {
    std::string why = fmt::format("{} closed the connection", name);
    bool closed = true;
    try {
      for (;;) {
        const std::optional<std::string> message = co_await stream.receive();
        if (!message) break;
        to.message(*message);
      }
    } catch (const error& e) {
      why = e.what();
      closed = false;
    }
    to.lost(why, closed);
  }

  std::string name;
  message_stream stream;
  handlers to;
  core::background_tasks reader;  // last: the task uses the others
};

control_link::control_link(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
control_link::~control_link() = default;

void control_link::start(handlers to) {
  impl_->to = std::move(to);
  impl_->reader.start(impl_->read());
}

void control_link::send(std::string_view message) {
  if (!impl_->stream.socket().is_open()) return;
  std::string framed(4, '\0');
  base::put_little_endian(reinterpret_cast<std::uint8_t*>(framed.data()),
                          static_cast<std::uint32_t>(message.size()));
  framed += message;
  impl_->stream.send(std::move(framed));
}

void control_link::close() noexcept { impl_->stream.close(); }

void control_link::finish() noexcept {
  boost::system::error_code ignored;
  impl_->stream.socket().shutdown(core::stream_socket::shutdown_send, ignored);
}

const std::string& control_link::peer() const noexcept { return impl_->name; }

struct control_listener::impl {
  impl(asio::any_io_executor e, std::string secret, tls_identity tls, silence_limit s, handlers h)
      : executor(e),
        silence(s),
        to(std::move(h)),
        entrance(e, "tutti-run", std::move(secret), core::purpose::launcher,
                 [this](core::stream_socket socket, const core::identity& who) {
                   to.arrived(std::make_unique<control_link>(
                                  std::make_unique<control_link::impl>(std::move(socket), silence)),
                              who.rank);
                 }) {
    entrance.secure_with(std::move(tls));
    entrance.report_unauthenticated(
        [this](const std::string& from, const error& why) { to.unauthenticated(from, why.what()); });
  }

  asio::any_io_executor executor;
  silence_limit silence;
  handlers to;
  acceptor entrance;
};

control_listener::control_listener(asio::any_io_executor executor, std::string secret, tls_identity tls,
                                   silence_limit silence, handlers to)
    : impl_(std::make_unique<impl>(std::move(executor), std::move(secret), std::move(tls), silence,
                                   std::move(to))) {}
control_listener::~control_listener() = default;

void control_listener::open(base::unique_fd listening) {
  tcp::endpoint at;
  auto length = static_cast<socklen_t>(at.capacity());
  if (::getsockname(listening.get(), at.data(), &length) != 0)
    throw error(errc::invalid_argument, "not a listening socket");
  at.resize(length);
  ::fcntl(listening.get(), F_SETFL, ::fcntl(listening.get(), F_GETFL) | O_NONBLOCK);
  tcp::acceptor acceptor(impl_->executor, at.protocol(), listening.get());
  listening.release();
  impl_->entrance.open(std::move(acceptor));
}

struct control_caller::impl {
  impl(asio::any_io_executor e, std::string s, tls_identity t, silence_limit l, int n, handlers h)
      : executor(std::move(e)),
        secret(std::move(s)),
        tls(std::move(t)),
        silence(l),
        node(n),
        to(std::move(h)) {}

  task<> call(std::string host, std::uint16_t port, std::chrono::milliseconds timeout) {
    std::optional<core::stream_socket> socket;
    std::string why;
    try {
      const core::time_point deadline = core::deadline_after(timeout);
      endpoints addresses = co_await resolve_host(executor, host, port, deadline);
      core::identity mine;
      mine.what = core::purpose::launcher;
      mine.rank = node;
      std::string last_failure;
      socket = co_await connect_retry(executor, std::move(addresses), secret, tls, mine, listener::may_come,
                                      deadline, &last_failure);
      if (!socket)
        why = fmt::format("nobody was there within {} ({})", base::duration_text(timeout), last_failure);
    } catch (const error& e) {
      why = e.what();
    }
    if (!socket) {
      to.failed(why);
      co_return;
    }
    to.connected(
        std::make_unique<control_link>(std::make_unique<control_link::impl>(std::move(*socket), silence)));
  }

  asio::any_io_executor executor;
  std::string secret;
  tls_identity tls;
  silence_limit silence;
  int node;
  handlers to;
  core::background_tasks calls;  // last: the task uses the others
};

control_caller::control_caller(asio::any_io_executor executor, std::string secret, tls_identity tls,
                               silence_limit silence, int node, handlers to)
    : impl_(std::make_unique<impl>(std::move(executor), std::move(secret), std::move(tls), silence, node,
                                   std::move(to))) {}
control_caller::~control_caller() = default;

void control_caller::call(std::string host, std::uint16_t port, std::chrono::milliseconds timeout) {
  impl_->calls.start(impl_->call(std::move(host), port, timeout));
}

}  // namespace tutti::bootstrap
