// SPDX-License-Identifier: Apache-2.0
// Whole reads, whole writes and connecting on non-blocking sockets, each with a deadline: for handshakes and
// stores. (Transports move payload by means of their own.)
//
// Only readiness is awaited; the coroutine itself moves the bytes. So a coroutine may be destroyed at any
// suspension: nothing outside it points into its buffers.
#pragma once

#include "core/platform.hpp"
#include "core/tls.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::core {

// A socket with its TLS session, if any.
class stream_socket : public boost::asio::generic::stream_protocol::socket {
 public:
  using boost::asio::generic::stream_protocol::socket::socket;

  // Makes the data below go through TLS from the handshake on, if `identity` is not null.
  void secure_with(tls_identity identity) noexcept { identity_ = std::move(identity); }
  const tls_identity& identity() const noexcept { return identity_; }
  // Null without TLS, or before the handshake.
  tls_session* tls() const noexcept { return session_.get(); }
  std::unique_ptr<tls_session> take_tls() noexcept { return std::move(session_); }
  // What its bytes go through: the TLS session, or the socket itself. Of a closed socket always the latter, which then
  // fails with EBADF: the session has the number of a descriptor that may be another's by now.
  byte_stream& stream() noexcept {
    if (session_ && is_open()) return *session_;
    plain_ = socket_stream(native_handle());
    return plain_;
  }

 private:
  friend task<> start_tls(stream_socket& socket, tls_session::side side, time_point deadline);

  tls_identity identity_;
  std::unique_ptr<tls_session> session_;
  socket_stream plain_;
};
using stream_endpoint = boost::asio::generic::stream_protocol::endpoint;

// For all of these: the socket outlives the task, and the deadline cancels all else that waits on that socket.
// Errors: timed_out; cancelled, if another caller closed or cancelled the socket; peer_failed, if the connection
// broke or ended too early; resources or system, if no socket can be had.

// Completes when the socket is readable or writable.
task<> wait_ready(stream_socket& socket, stream_socket::wait_type what, time_point deadline);
// Completes when all of `into` has been filled; it stays valid meanwhile.
task<> read_exactly(stream_socket& socket, std::span<std::uint8_t> into, time_point deadline);
// Completes when there was data; returns 0 at the end of the stream.
task<std::size_t> read_some(stream_socket& socket, std::span<std::uint8_t> into, time_point deadline);
// Completes when the kernel has all of `from`; it stays valid meanwhile.
task<> write_all(stream_socket& socket, std::span<const std::uint8_t> from, time_point deadline);

// Completes when the TLS session of the socket's identity is set up. Also throws unauthorized (a side does
// not accept the other's certificate) and protocol.
task<> start_tls(stream_socket& socket, tls_session::side side, time_point deadline);

// The host is there, but no process listens.
struct connection_refused final : error {
  using error::error;
};

// If no process listens at a port, the kernel may connect the socket to itself, from there. connect() refuses that.
bool is_connected_to_itself(const stream_socket& socket);

// Returns a connected socket: non-blocking, closed on exec, without Nagle's delay. Also throws connection_refused.
task<stream_socket> connect(boost::asio::any_io_executor executor, stream_endpoint to, time_point deadline);

// Whether a call failed with this errno because descriptors ran out.
bool out_of_descriptors(int code) noexcept;
// The same for descriptors or memory.
bool out_of_resources(int code) noexcept;

// "127.0.0.1:4711", "[::1]:4711", "@abstract-name", "/a/path": for error texts.
std::string endpoint_text(const stream_endpoint& endpoint);
// The other side of `socket` for error texts; "the other side" if there is none.
std::string peer_text(const stream_socket& socket);

}  // namespace tutti::core
