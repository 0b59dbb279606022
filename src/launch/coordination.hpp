// SPDX-License-Identifier: Apache-2.0
// coordination: what coordinates all nodes, as one node's launcher sees it: here, or at the other end of a
// connection. From its construction on it commands by a function, from the loop, never from inside these calls.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/store.hpp>
#include <tutti/tls.hpp>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "bootstrap/control_link.hpp"
#include "bootstrap/election.hpp"
#include "launch/node_messages.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

class coordination {
 public:
  // The node that is coordinated.
  struct place {
    boost::asio::io_context& loop;
    const options& o;
    std::string secret;
    tls_identity tls;
    hello own;
    std::function<void(const command&)> execute;
    std::function<void(std::string_view)> say;  // lines for its user
  };

  // On node 0, besides its own ranks: waits for the launchers of the other nodes, and carries messages between
  // them and the coordinator, which decides. Throws std::runtime_error if they cannot come to --master: it is not
  // an address of this host, or its port is in use. On every other node: calls node 0's launcher, does what it
  // says, and ends the job here when node 0 has gone.
  // Where the launchers meet in etcd, it is one or the other by turns (elected_node.cpp).
  static std::unique_ptr<coordination> make(place node);

  coordination(const coordination&) = delete;
  coordination& operator=(const coordination&) = delete;
  virtual ~coordination() = default;

  virtual void tell(const event& what) = 0;
  // The user has asked repeatedly: stops waiting for other nodes.
  virtual void lose_patience() = 0;
  // What this launcher is to the others: attends: one of them coordinates. gathers: it coordinates, and waits for them
  // to begin the job or to take it over. leads: they run, and can go on without it. alone: no others can.
  enum class role : std::uint8_t { attends, gathers, leads, alone };
  virtual role is() const { return role::attends; }
  // The store's socket, with the command to start, on the node that has rank 0.
  virtual base::unique_fd take_store() { return {}; }

 protected:
  // The launcher that coordinates because the launchers in etcd have it so. If its ranks run, it takes over.
  struct seat {
    base::unique_fd listening;
    std::unique_ptr<store> of_run;  // where the ranks meet
    std::string run;                // the id of the job
    // With ranks of this run. Those that live are waited for, and those that are dead have no ranks any more.
    std::vector<bootstrap::launcher_entry> others;
    std::string why;  // the launcher before was lost
    // Called when a node has fallen silent: perhaps it is this one that is out of reach.
    std::function<void()> doubt;
  };
  // One that goes to the launcher that coordinates.
  struct attendance {
    std::unique_ptr<bootstrap::control_link> link;
    std::vector<event> repeated;  // which the one before may not have heard
    bool ranks_run = false;
    std::chrono::milliseconds grace{0};            // of the ranks that run
    std::function<void(const std::string&)> lost;  // called once when it has gone; the ranks run on
  };
  static std::unique_ptr<coordination> make_elected(place node);
  static std::unique_ptr<coordination> make_head(place node, std::optional<seat> elected);
  static std::unique_ptr<coordination> make_member(place node);
  static std::unique_ptr<coordination> make_member(place node, attendance to);

  explicit coordination(place node) : node_(std::move(node)) {}
  // Calls `f` from the loop, unless this has gone by then.
  template <class F>
  void later(F f) {
    boost::asio::post(node_.loop, [lives = std::weak_ptr<bool>(lives_), f = std::move(f)] {
      if (!lives.expired()) f();
    });
  }
  void execute(const command& what) {
    later([this, what] { node_.execute(what); });
  }

  place node_;
  const options& options_ = node_.o;

 private:
  const std::shared_ptr<bool> lives_ = std::make_shared<bool>();
};

// Where the launchers meet, for texts.
inline std::string meeting_place(const options& o) {
  return o.store.empty() ? fmt::format("{}:{}", o.master->host, o.master->port) : o.store;
}

// After which the launcher of a node that is out of reach has noticed it, too, and has ended its ranks.
inline std::chrono::milliseconds time_to_end_unheard(const options& o) {
  const auto search =
      o.store.empty() ? std::chrono::milliseconds(0) : o.node_timeout;  // for another coordinator
  return o.node_timeout + search + o.grace + std::chrono::seconds(5);
}

}  // namespace tutti::launch
