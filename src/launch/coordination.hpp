// SPDX-License-Identifier: Apache-2.0
// coordination: what coordinates all nodes, as one node's launcher sees it: here, or at the other end of a
// connection. From its construction on it commands by a function, from the loop, never from inside these calls.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/tls.hpp>
#include <utility>

#include "base/unique_fd.hpp"
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
  static std::unique_ptr<coordination> make(place node);

  coordination(const coordination&) = delete;
  coordination& operator=(const coordination&) = delete;
  virtual ~coordination() = default;

  virtual void tell(const event& what) = 0;
  // The user has asked repeatedly: stops waiting for other nodes.
  virtual void lose_patience() = 0;
  // The store's socket, with the command to start, on the node that has rank 0.
  virtual base::unique_fd take_store() { return {}; }

 protected:
  explicit coordination(place node) : node_(std::move(node)) {}
  void execute(const command& what) {
    boost::asio::post(node_.loop, [this, what] { node_.execute(what); });
  }

  place node_;
  const options& options_ = node_.o;
};

// After which the launcher of a node that is out of reach has noticed it, too, and has ended its ranks.
inline std::chrono::milliseconds time_to_end_unheard(const options& o) {
  return o.node_timeout + o.grace + std::chrono::seconds(5);
}

}  // namespace tutti::launch
