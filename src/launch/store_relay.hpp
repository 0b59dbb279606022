// SPDX-License-Identifier: Apache-2.0
// store_relay: where nodes come and go, the ranks of this node reach the store in which they meet through their launcher:
// it has one connection, which it makes again when it breaks, and asks once for what they all want to know.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <tutti/tls.hpp>
#include <utility>

#include "base/unique_fd.hpp"
#include "launch/node_messages.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

class store_relay {
 public:
  // `o` outlives this.
  store_relay(boost::asio::io_context& loop, const options& o, std::string secret, tls_identity tls)
      : loop_(loop), options_(o), secret_(std::move(secret)), tls_(std::move(tls)) {}

  // For one start of the ranks here. Returns the port on this host's loopback; 0: they go to the store themselves, as
  // they do if the port turns out not to answer.
  int open(const start_ranks& start);

 private:
  task<std::unique_ptr<store>> connect(start_ranks start, std::chrono::milliseconds most);
  task<> serve(base::unique_fd listening, start_ranks start);

  boost::asio::io_context& loop_;
  const options& options_;
  const std::string secret_;
  const tls_identity tls_;
  int port_ = 0;
  std::unique_ptr<tcp_store_server> server_;
  scope calls_;  // last: its tasks use the others
};

}  // namespace tutti::launch
