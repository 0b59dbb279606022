// SPDX-License-Identifier: Apache-2.0
// head_node: node 0's part besides its own ranks. It waits for the launchers of the other nodes, and carries
// messages between them and the coordinator, which decides.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tutti/tls.hpp>
#include <vector>

#include "bootstrap/control_link.hpp"
#include "bootstrap/elastic_store.hpp"
#include "launch/coordination.hpp"
#include "launch/coordinator.hpp"
#include "launch/options.hpp"
#include "launch/store_socket.hpp"

namespace tutti::launch {

// After which the launcher of a node that is out of reach has noticed it, too, and has ended its ranks.
std::chrono::milliseconds time_to_end_unheard(const options& o);

class head_node : public coordination {
 public:
  struct outlets {
    std::function<void(const command&)> execute;  // on this node
    std::function<void(std::string_view)> say;
  };
  // Throws std::runtime_error if --master is not an address of this host, or its port is in use.
  head_node(boost::asio::io_context& loop, const options& o, const std::string& secret, tls_identity tls,
            hello own, outlets to);
  ~head_node() override;

  void begin() override;
  void tell(const event& what) override;
  void lose_patience() override;
  base::unique_fd take_store() override { return std::move(store_); }

 private:
  struct pending_connection;

  void arrived(std::unique_ptr<bootstrap::control_link> link);
  void on_message(pending_connection& from, std::string_view message);
  void on_lost(pending_connection& who, const std::string& why, bool closed);
  void take_off(int node, bool closed);
  void unauthenticated(const std::string& from, const std::string& why);
  void join_overdue();
  bool admits_nodes() const;
  void send(int node, const command& what);
  void end_if_told();
  void hear(int node, const event& what);
  void look_whether_done();
  int open_store();

  // Asks all nodes for the records of their ranks, and says who waits for whom when they have answered.
  void ask_for_records();
  void take_records(int node, const records_told& told);
  void has_told(int node);
  void explain();

  boost::asio::io_context& loop_;
  const options& options_;
  hello own_;
  outlets to_;
  std::vector<base::unique_fd> rendezvous_;
  base::unique_fd store_;  // listens for the next start
  std::string secret_;
  tls_identity tls_;
  // Where nodes come and go.
  std::unique_ptr<tcp_store_server> server_;
  std::unique_ptr<bootstrap::elastic_store> elastic_;
  coordinator coordinator_;
  std::set<int> asked_;  // the nodes that have not sent all records
  std::vector<flight::rank_snapshot> records_;
  std::chrono::steady_clock::time_point explained_at_{};
  boost::asio::steady_timer answer_deadline_;
  boost::asio::steady_timer join_deadline_;
  boost::asio::steady_timer end_deadline_;
  std::list<boost::asio::steady_timer> losses_;  // of nodes that are silent
  std::optional<command> last_command_;          // for this node, once the others have theirs
  std::set<std::string> unauthenticated_;        // addresses that were reported
  std::vector<std::unique_ptr<pending_connection>> connections_;
  std::map<int, pending_connection*> nodes_;  // those that have joined and not gone
  std::unique_ptr<bootstrap::acceptor> listener_;
};

}  // namespace tutti::launch
