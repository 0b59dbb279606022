// SPDX-License-Identifier: Apache-2.0
// explanations: node 0 asks all nodes for the records of their ranks, and says who waits for whom.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "launch/node_messages.hpp"

namespace tutti::launch {

class explanations {
 public:
  struct outlets {
    std::function<std::vector<int>()> nodes;  // that can be asked
    std::function<void(int node)> ask;
    std::function<void(std::string_view)> say;
  };
  explanations(boost::asio::io_context& loop, outlets to);

  // Returns true if the event was an answer to this.
  bool take(int node, const event& what);
  // Nothing more will be heard from that node.
  void lost(int node);

 private:
  void begin();
  void conclude();

  outlets to_;
  boost::asio::steady_timer patience_;
  std::set<int> asked_;  // those that have not sent everything
  std::vector<flight::rank_snapshot> told_;
  bool running_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace tutti::launch
