// SPDX-License-Identifier: Apache-2.0
// Connections whose both sides prove that they know the secret: acceptor accepts them, and connect_retry makes
// them.
//
// core/admission.hpp limits what unauthenticated peers can cost.
#pragma once

#include "base/unique_fd.hpp"
#include "bootstrap/address.hpp"
#include "core/admission.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tutti/tls.hpp>
#include <vector>

namespace tutti::bootstrap {

class acceptor {
 public:
  // `on_accepted` gets each connection once both sides have proved themselves. `name` is for log lines.
  // Connections use TLS unless `tls` is null. `report` is called for every unauthenticated peer: where it
  // called from, and why it was rejected; if empty, that is logged. Peers that close the connection
  // themselves are not reported. While `has_room`, if given, returns false, new connections are closed at once, and
  // their callers try again (connect_retry).
  using handler = std::function<void(core::stream_socket, const core::identity&)>;
  using reporter = std::function<void(const std::string& from, const std::string& why)>;
  acceptor(boost::asio::any_io_executor executor, std::string name, std::string secret, tls_identity tls,
           core::purpose what, handler on_accepted, reporter report = {},
           std::function<bool()> has_room = {});
  acceptor(const acceptor&) = delete;
  acceptor& operator=(const acceptor&) = delete;

  // Accepts on a listening TCP socket. Throws errc::invalid_argument for any other descriptor.
  void open(base::unique_fd socket);
  // Stops listening. Handshakes in progress are finished as before.
  void close();
  // Connections that have not proved themselves yet.
  int unproved() const noexcept;

 private:
  struct listening {
    core::admission::listener socket;
    core::admission admission{socket.get_executor()};
  };

  task<> let_in(listening& by, core::stream_socket socket);

  boost::asio::any_io_executor executor_;
  std::string name_;
  std::string secret_;
  tls_identity tls_;
  core::purpose what_;
  handler on_accepted_;
  reporter report_;
  std::function<bool()> has_room_;
  std::vector<std::unique_ptr<listening>> listeners_;
  core::unauthenticated_log unauthenticated_;
  core::background_tasks acceptors_;
  core::background_tasks pending_;  // last: its tasks use the others
};

enum class listener {
  may_come,  // the listener may start later than this call
  has_come   // it started before: if the connection is refused now, no listener will appear later
};

// Returns a connection to one of `addresses`, proved on both sides. Returns nullopt when the deadline has
// passed, or when all of them refuse and the listener has already started. `last_failure`, which outlives the
// task, then has the last failure. Throws errors that no further attempt would cure: unauthorized, protocol,
// join_failed, cancelled.
task<std::optional<core::stream_socket>> connect_retry(boost::asio::any_io_executor executor,
                                                       endpoints addresses, std::string secret,
                                                       tls_identity tls, core::identity mine, listener whom,
                                                       core::time_point deadline, std::string* last_failure);

}  // namespace tutti::bootstrap
