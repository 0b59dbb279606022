// SPDX-License-Identifier: Apache-2.0
// connector: makes connections between ranks. It connects when a link needs it and accepts when a peer does.
// If both do so at once, the connection started by the lower rank stays.
#pragma once

#include "base/unique_fd.hpp"
#include "core/admission.hpp"
#include "core/background.hpp"
#include "core/handshake.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "transport/tcp/tcp_link.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::transport::tcp {

class connector {
 public:
  // Accepts from now on. Destroying it ends unfinished work where it waits.
  connector(core::loop& loop, tcp_transport& owner, base::unique_fd listener);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  // Starts to connect an idle link. It ends connected, accepting or failing.
  void connect(tcp_link& l) noexcept;
  void stop_connecting(tcp_link& l) noexcept;
  // Starts to make the further connections of a connected link. The link does without those that cannot be
  // had.
  void connect_further(tcp_link& l) noexcept;
  // Refuses new peers from now on.
  void stop_listening() noexcept;

 private:
  struct setback;

  task<> reach(tcp_link& l);
  task<> try_endpoints(tcp_link& l, core::time_point deadline, setback* last,
                       std::optional<core::stream_socket>* declined);
  task<> reach_further(tcp_link& l);
  task<bool> add_further(tcp_link& l, core::stream_endpoint to, core::time_point deadline);
  task<> await_peer(tcp_link& l, core::stream_socket declined, core::time_point deadline);
  task<> serve(core::stream_socket accepted);
  task<> converse(core::stream_socket& socket, core::time_point deadline);

  task<> take_further(core::stream_socket& socket, core::greeting from, core::time_point deadline);
  std::optional<core::verdict> judge(const core::identity& peer);
  void abandon_accepting(tcp_link& l) noexcept;
  static void attach_further(tcp_link& l, connection& c, core::stream_socket& socket, bool usable);
  void give_up(tcp_link& l, const setback& last);

  core::loop& loop_;
  tcp_transport& owner_;
  boost::asio::ip::tcp::acceptor acceptor_;
  core::admission admission_;  // of peers whose handshake is in progress
  core::unauthenticated_log unauthenticated_{"this rank's TCP port"};
  std::vector<std::unique_ptr<core::running_task>> attempts_;  // by peer
  core::background_tasks handshake_tasks_;
  core::background_tasks further_;
  core::running_task accepting_;
};

}  // namespace tutti::transport::tcp
