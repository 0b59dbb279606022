// SPDX-License-Identifier: Apache-2.0
#include "core/socket_io.hpp"

#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "base/unique_fd.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

namespace tutti::core {
namespace {

namespace asio = boost::asio;

// A deadline for operations on a socket: when it passes, the socket's pending operations are cancelled.
class deadline_guard {
 public:
  deadline_guard(stream_socket& socket, time_point deadline)
      : timer_(socket.get_executor(), deadline), expired_(std::make_shared<bool>(false)) {
    timer_.async_wait([&socket, expired = std::weak_ptr<bool>(expired_)](boost::system::error_code code) {
      const auto alive = expired.lock();  // null: the guard, and perhaps the socket, have gone
      if (code || !alive) return;
      *alive = true;
      boost::system::error_code ignored;
      socket.cancel(ignored);
    });
  }
  bool expired() const noexcept { return *expired_; }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<bool> expired_;
};

constexpr const char* cure_of_tls =
    "look at the certificates and authorities of both sides (TUTTI_TLS_CERTIFICATE, TUTTI_TLS_AUTHORITY), "
    "their "
    "dates, and the clocks";

[[noreturn]] void throw_timed_out(const stream_socket& socket) {
  base::throw_error(errc::timed_out, "{} did not answer in time", peer_text(socket));
}

[[noreturn]] void throw_broken(const stream_socket& socket, int code) {
  if (code == EBADMSG && socket.tls() != nullptr)
    base::throw_error(errc::unauthorized, "{} ended TLS: {}; {}", peer_text(socket),
                      socket.tls()->complaint(), cure_of_tls);
  if (code == EBADF) throw error(errc::cancelled, "the connection was closed on this side");
  base::throw_error(errc::peer_failed, "the connection to {} broke: {}", peer_text(socket),
                    base::errno_text(code));
}

std::string conversation_with(const stream_socket& socket) {
  return fmt::format("waiting for {}", peer_text(socket));
}

// The other side may still be sending: closing now would reset the connection, and destroy the answer.
task<> let_complaint_arrive(stream_socket& socket, time_point deadline) {
  constexpr auto patience = std::chrono::milliseconds(500);
  constexpr std::size_t most_bytes = std::size_t{64} * 1024;
  ::shutdown(socket.native_handle(), SHUT_WR);
  std::uint8_t sink[4096];
  const time_point until = std::min(deadline, clock::now() + patience);
  std::size_t read = 0;
  try {
    for (std::size_t got = 1; got > 0 && read < most_bytes; read += got) {
      got = co_await read_some(socket, sink, until);
    }
  } catch (const error&) {
  }
}

}  // namespace

task<> wait_ready(stream_socket& socket, stream_socket::wait_type what, time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  self->throw_if_stopped(conversation_with(socket));
  std::optional<deadline_guard> limit;
  if (deadline != time_point::max()) {
    if (clock::now() >= deadline) throw_timed_out(socket);
    limit.emplace(socket, deadline);
  }
  const std::tuple<boost::system::error_code> done =
      co_await socket.async_wait(what, asio::as_tuple(asio::deferred));
  const boost::system::error_code code = std::get<0>(done);
  if (!code) co_return;
  if (limit && limit->expired()) throw_timed_out(socket);
  self->throw_if_stopped(conversation_with(socket));
  if (code == asio::error::operation_aborted)
    throw error(errc::cancelled, "the connection was closed on this side");
  throw_broken(socket, code.value());
}

task<std::size_t> read_some(stream_socket& socket, std::span<std::uint8_t> into, time_point deadline) {
  for (;;) {
    iovec part{into.data(), into.size()};
    const ssize_t got = socket.stream().read(&part, 1);
    if (got >= 0) co_return static_cast<std::size_t>(got);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_broken(socket, errno);
    co_await wait_ready(socket, stream_socket::wait_read, deadline);
  }
}

task<> read_exactly(stream_socket& socket, std::span<std::uint8_t> into, time_point deadline) {
  const std::size_t wanted = into.size();
  while (!into.empty()) {
    const std::size_t got = co_await read_some(socket, into, deadline);
    if (got == 0)
      base::throw_error(errc::peer_failed, "{} closed the connection after {} of {} bytes", peer_text(socket),
                        wanted - into.size(), wanted);
    into = into.subspan(got);
  }
}

task<> write_all(stream_socket& socket, std::span<const std::uint8_t> from, time_point deadline) {
  while (!from.empty()) {
    const iovec part{const_cast<std::uint8_t*>(from.data()), from.size()};
    const ssize_t sent = socket.stream().write(&part, 1);
    if (sent >= 0) {
      from = from.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_broken(socket, errno);
    co_await wait_ready(socket, stream_socket::wait_write, deadline);
  }
  while (socket.stream().flush() != 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_broken(socket, errno);
    co_await wait_ready(socket, stream_socket::wait_write, deadline);
  }
}

task<> start_tls(stream_socket& socket, tls_session::side side, time_point deadline) {
  const std::string who = peer_text(socket);
  std::unique_ptr<tls_session> session = socket.identity()->open(socket.native_handle(), side);
  for (;;) {
    switch (session->shake_hands()) {
      case tls_session::step::done:
        socket.session_ = std::move(session);
        co_return;
      case tls_session::step::wait_to_read:
        co_await wait_ready(socket, stream_socket::wait_read, deadline);
        break;
      case tls_session::step::wait_to_write:
        co_await wait_ready(socket, stream_socket::wait_write, deadline);
        break;
      case tls_session::step::ended:
        base::throw_error(errc::peer_failed, "{} closed the connection before TLS had begun", who);
      case tls_session::step::failed: {
        const std::string why = session->complaint();
        co_await let_complaint_arrive(socket, deadline);
        base::throw_error(errc::unauthorized, "no TLS session with {}: {}; {}", who, why, cure_of_tls);
      }
    }
  }
}

bool is_connected_to_itself(const stream_socket& socket) {
  boost::system::error_code failed;
  return socket.local_endpoint(failed) == socket.remote_endpoint(failed) && !failed;
}

task<stream_socket> connect(asio::any_io_executor executor, stream_endpoint to, time_point deadline) {
  const int family = to.protocol().family();
  base::unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    const int code = errno;
    base::throw_error(out_of_resources(code) ? errc::resources : errc::system,
                      "no socket to connect to {} with: {}", endpoint_text(to), base::errno_text(code));
  }
  const int native = fd.get();
  stream_socket socket(executor, to.protocol(), native);
  fd.release();

  int code = ::connect(native, to.data(), static_cast<socklen_t>(to.size())) == 0 ? 0 : errno;
  if (code == EINPROGRESS || code == EINTR) {
    bool in_time = true;
    try {
      co_await wait_ready(socket, stream_socket::wait_write, deadline);
    } catch (const error& e) {
      // The socket itself reports other failures better.
      if (e.code() == errc::cancelled) throw;
      in_time = e.code() != errc::timed_out;
    }
    if (!in_time) base::throw_error(errc::timed_out, "no answer from {} in time", endpoint_text(to));
    socklen_t length = sizeof code;
    if (::getsockopt(native, SOL_SOCKET, SO_ERROR, &code, &length) != 0) code = errno;
  }
  if (code == 0 && is_connected_to_itself(socket)) {
    code = ECONNREFUSED;
    // Closing it must not leave the port in use, which the listener may be about to open.
    boost::system::error_code ignored;
    socket.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  if (code != 0) {
    const std::string why =
        fmt::format("cannot connect to {}: {}", endpoint_text(to), base::errno_text(code));
    if (code == ECONNREFUSED) throw connection_refused(errc::peer_failed, why);
    throw error(errc::peer_failed, why);
  }
  if (family == AF_INET || family == AF_INET6) {
    const int on = 1;
    ::setsockopt(native, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  co_return std::move(socket);
}

bool out_of_descriptors(int code) noexcept { return code == EMFILE || code == ENFILE; }
bool out_of_resources(int code) noexcept {
  return out_of_descriptors(code) || code == ENOBUFS || code == ENOMEM;
}

std::string endpoint_text(const stream_endpoint& endpoint) {
  const sockaddr* const any = endpoint.data();
  if (any->sa_family == AF_INET || any->sa_family == AF_INET6) {
    asio::ip::tcp::endpoint at;
    std::memcpy(at.data(), any, std::min(endpoint.size(), at.capacity()));
    const std::string address = at.address().to_string();
    return fmt::format(fmt::runtime(any->sa_family == AF_INET6 ? "[{}]:{}" : "{}:{}"), address, at.port());
  }
  if (any->sa_family != AF_UNIX) return fmt::format("an address of family {}", any->sa_family);
  constexpr std::size_t start = offsetof(sockaddr_un, sun_path);
  if (endpoint.size() <= start) return "an unnamed local socket";
  sockaddr_un local;
  const std::size_t bytes = std::min(endpoint.size(), sizeof local);
  std::memcpy(&local, any, bytes);
  if (local.sun_path[0] == '\0')
    return fmt::format("@{}", std::string_view(local.sun_path + 1, bytes - start - 1));
  return {local.sun_path, ::strnlen(local.sun_path, bytes - start)};
}

std::string peer_text(const stream_socket& socket) {
  boost::system::error_code code;
  const stream_endpoint peer = socket.remote_endpoint(code);
  return code ? std::string("the other side") : endpoint_text(peer);
}

}  // namespace tutti::core
