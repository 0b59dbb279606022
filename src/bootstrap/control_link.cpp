// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_link.hpp"

#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/address.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
namespace {

// Makes the kernel give up data that were sent in vain.
void limit_wait(core::stream_socket& socket, std::chrono::milliseconds silence) {
  const auto patience = static_cast<unsigned>(std::max<std::int64_t>(1000, silence.count()));
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
}

}  // namespace

control_link::control_link(core::stream_socket socket, std::chrono::milliseconds silence)
    : name_(core::peer_text(socket)), stream_(std::move(socket)) {
  stream_.notice_silence(silence);
  limit_wait(stream_.socket(), silence);
}

void control_link::start(handlers to) {
  to_ = std::move(to);
  reader_.start(read());
}

task<> control_link::read() {
  std::string why = fmt::format("{} closed the connection", name_);
  bool closed = true;
  try {
    for (;;) {
      const std::optional<std::string> message = co_await stream_.receive();
      if (!message) break;
      to_.message(*message);
    }
  } catch (const error& e) {
    why = e.what();
    closed = false;
  }
  to_.lost(why, closed);
}

void control_link::finish() noexcept {
  boost::system::error_code ignored;
  stream_.socket().shutdown(core::stream_socket::shutdown_send, ignored);
}

std::unique_ptr<acceptor> accept_launchers(asio::any_io_executor executor, std::string secret,
                                           tls_identity tls, std::chrono::milliseconds silence,
                                           std::function<void(std::unique_ptr<control_link>, int)> arrived,
                                           acceptor::reporter unauthenticated) {
  auto take = [silence, arrived = std::move(arrived)](core::stream_socket socket, const core::identity& who) {
    arrived(std::make_unique<control_link>(std::move(socket), silence), who.rank);
  };
  return std::make_unique<acceptor>(std::move(executor), "tutti-run", std::move(secret), std::move(tls),
                                    core::purpose::launcher, std::move(take), std::move(unauthenticated));
}

task<bool> may_listen(asio::any_io_executor executor, std::string host, std::uint16_t port,
                      std::chrono::milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  const endpoints addresses = co_await resolve_host(executor, host, port, deadline);
  for (const auto& address : addresses) {
    try {
      co_await core::connect(executor, address, deadline);
    } catch (const core::connection_refused&) {
      continue;
    } catch (const error&) {
    }
    co_return true;
  }
  co_return false;
}

task<std::unique_ptr<control_link>> call_launcher(asio::any_io_executor executor, control_target to,
                                                  listener whom) {
  const core::time_point deadline = core::deadline_after(to.timeout);
  endpoints addresses = co_await resolve_host(executor, to.host, to.port, deadline);
  const core::identity mine{.what = core::purpose::launcher, .rank = to.node};
  std::string last_failure;
  std::optional<core::stream_socket> socket = co_await connect_retry(
      executor, std::move(addresses), to.secret, to.tls, mine, whom, deadline, &last_failure);
  if (!socket && whom == listener::has_come && core::clock::now() < deadline) co_return nullptr;
  if (!socket)
    base::throw_error(errc::join_failed, "nobody was there within {} ({})", base::duration_text(to.timeout),
                      last_failure);
  co_return std::make_unique<control_link>(std::move(*socket), to.silence);
}

}  // namespace tutti::bootstrap
