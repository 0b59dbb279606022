// SPDX-License-Identifier: Apache-2.0
// acceptor: accepts connections, and passes on those of peers that prove that they know the secret.
//
// core/admission.hpp limits what unauthenticated peers can cost.
#pragma once

#include "base/unique_fd.hpp"
#include "core/admission.hpp"
#include "core/background.hpp"
#include "core/handshake.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <tutti/tls.hpp>
#include <vector>

namespace tutti::bootstrap {

class acceptor {
 public:
  // `on_accepted` gets each connection once both sides have proved themselves. `name` is for log lines.
  // Connections use TLS unless `tls` is null. `report` is called for every unauthenticated peer: where it
  // called from, and why it was rejected; if empty, that is logged. Peers that close the connection
  // themselves are not reported.
  using handler = std::function<void(core::stream_socket, const core::identity&)>;
  using reporter = std::function<void(const std::string& from, const std::string& why)>;
  acceptor(boost::asio::any_io_executor executor, std::string name, std::string secret, tls_identity tls,
           core::purpose what, handler on_accepted, reporter report = {});
  acceptor(const acceptor&) = delete;
  acceptor& operator=(const acceptor&) = delete;

  // Accepts on a listening TCP socket. Throws errc::invalid_argument for any other descriptor.
  void open(base::unique_fd listening);
  // Stops listening. Handshakes in progress are finished as before.
  void close();

 private:
  struct listener {
    listener(boost::asio::any_io_executor executor, boost::asio::ip::tcp::acceptor a);
    boost::asio::ip::tcp::acceptor acceptor;
    core::admission admission;
  };

  task<> let_in(listener& by, core::stream_socket socket);
  task<bool> prove(listener& by, core::stream_socket& socket, core::identity& who);

  boost::asio::any_io_executor executor_;
  std::string name_;
  std::string secret_;
  tls_identity tls_;
  core::purpose what_;
  handler on_accepted_;
  reporter report_;
  std::vector<std::unique_ptr<listener>> listeners_;
  core::unauthenticated_log unauthenticated_;
  core::background_tasks acceptors_;
  core::background_tasks pending_;  // last: its tasks use the others
};

}  // namespace tutti::bootstrap
