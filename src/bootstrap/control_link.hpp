// SPDX-License-Identifier: Apache-2.0
// Connections between the launchers of a job: messages both ways, proved on both sides, over TLS if both have
// it. A broken one is noticed, even if the other host vanished silently.
//
// Handlers are called from the loop. None of them may destroy the object that calls it.
#pragma once

#include "bootstrap/acceptor.hpp"
#include "bootstrap/message_stream.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/tls.hpp>

namespace tutti::bootstrap {

class control_link {
 public:
  // Over a connection that is proved on both sides. `silence` is how long the other side's kernel may be silent
  // before the connection counts as broken. A stopped or busy process is not silent.
  control_link(core::stream_socket socket, std::chrono::milliseconds silence);
  control_link(const control_link&) = delete;
  control_link& operator=(const control_link&) = delete;

  // Sets the handlers: `message` is called for each message, and `lost` once, when no more can come, with the
  // reason as text. A tutti::error thrown by `message` breaks the connection.
  struct handlers {
    std::function<void(std::string_view message)> message;
    std::function<void(const std::string& why, bool closed)> lost;
  };
  void start(handlers to);
  // Queues a message. If it cannot be sent, the connection breaks, which `lost` reports.
  void send(std::string message) { stream_.send(std::move(message)); }
  // The other side learns that this one has gone. Without it, at the destruction.
  void close() noexcept { stream_.close(); }
  // Ends this direction; the other side can still send.
  void finish() noexcept;

 private:
  task<> read();

  std::string name_;  // of the other side: host and port
  message_stream stream_;
  handlers to_;
  core::background_tasks reader_;  // last: the task uses the others
};

// Returns an acceptor for launchers: `arrived` gets their links and the numbers of their nodes.
std::unique_ptr<acceptor> accept_launchers(
    boost::asio::any_io_executor executor, std::string secret, tls_identity tls,
    std::chrono::milliseconds silence, std::function<void(std::unique_ptr<control_link>, int node)> arrived,
    acceptor::reporter unauthenticated);

// Whether a launcher that has listened there may still do so: false if its host says that nothing listens.
task<bool> may_listen(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                      std::chrono::milliseconds timeout);

struct control_target {
  std::string host;
  std::uint16_t port;
  std::string secret;
  tls_identity tls;
  std::chrono::milliseconds silence;
  int node;  // of this launcher
  std::chrono::milliseconds timeout;
};
// Connects to a launcher. If it has listened before and does not any more, it has ended: returns null.
// Errors: join_failed, if nobody was there in time; those of resolve_host() and connect_retry().
task<std::unique_ptr<control_link>> call_launcher(boost::asio::any_io_executor executor, control_target to,
                                                  listener whom = listener::may_come);

}  // namespace tutti::bootstrap
