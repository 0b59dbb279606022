// SPDX-License-Identifier: Apache-2.0
// connecting_transport: a transport whose links need a connection each. It connects when a link needs it and
// accepts when a peer does. If both do so at once, the connection started by the lower rank stays.
#pragma once

#include "base/unique_fd.hpp"
#include "core/admission.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "transport/transport.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <optional>
#include <string>
#include <utility>

namespace tutti::transport {

class connecting_transport : public transport {
 public:
  void cut() noexcept override;

  // For the links.
  // Starts to connect an idle link. It ends connected, accepting or failed.
  void connect(peer_link& l) noexcept;

 protected:
  using phase = peer_link::phase;
  // Why connecting has failed.
  struct setback {
    errc code = errc::peer_failed;
    std::string text;
    bool answered = false;   // the peer's host took the connection
    bool refused = false;    // the peer's host said that no process listens there
    bool preferred = false;  // the peer was about to connect itself
  };

  // `purpose`: of the connections. `listener`: a name for log lines.
  connecting_transport(core::loop& loop, core::purpose purpose, const char* listener,
                       core::admission::limits pending);

  // Joins the loop and accepts at acceptor_. `tls`: of the connections, or null.
  void start(const core::world_info& info, inbound& up, tls_identity tls);
  // Whether all links have closed: what has_left() is where each closes when its peer has all. Refuses new peers once
  // no link needs them.
  bool all_have_closed() noexcept;
  static base::unique_fd take_descriptor(core::stream_socket& socket);

  // Opens a connection. Throws tutti::error.
  virtual task<core::stream_socket> dial(const core::endpoint_record& to, core::time_point deadline) = 0;
  // Whether a process that has connected may prove who it is.
  virtual bool may_prove(core::stream_socket&) { return true; }
  // Attaches a connection that both sides have accepted to its link, unless that has ended. Throws
  // tutti::error.
  virtual task<> complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) = 0;
  // Serves a connection of another purpose.
  virtual task<> serve_other(core::stream_socket&, core::greeting, core::time_point) { co_return; }
  // Ends a link that cannot be connected, with a text for people.
  virtual void give_up(peer_link& l, const setback& last) = 0;

  boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor_;
  core::background_tasks tasks_;

 private:
  using pending_connection = core::admission::pending_connection;

  void stop_listening() noexcept;
  task<> reach(peer_link& l);
  task<> find_record(peer_link& l, core::time_point deadline);
  task<> learn(int peer);
  task<> await_peer(peer_link& l, core::stream_socket& declined, core::time_point deadline);
  task<> serve(core::stream_socket accepted);
  task<> converse(core::stream_socket& socket, std::optional<pending_connection>& here);
  std::optional<core::verdict> judge(const core::identity& peer);

  const core::purpose purpose_;
  const char* const listener_;
  tls_identity tls_;
  core::admission admission_;  // of peers whose handshake is in progress
  core::unauthenticated_log unauthenticated_{listener_};
  core::running_task accepting_;
};

}  // namespace tutti::transport
