// SPDX-License-Identifier: Apache-2.0
// member_node: the part of every node but 0 besides its own ranks: calls node 0's launcher, does what it
// says, and ends the job here when node 0 has gone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/tls.hpp>

#include "bootstrap/control_link.hpp"
#include "launch/coordination.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

class member_node : public coordination {
 public:
  member_node(boost::asio::io_context& loop, const options& o, const std::string& secret, tls_identity tls,
              hello own, std::function<void(const command&)> execute);

  void begin() override;
  void tell(const event& what) override;
  void lose_patience() override;
  std::int64_t clock_offset_ns() const override { return clock_offset_ns_; }

 private:
  void on_message(std::string_view message);
  void on_lost(const std::string& why);
  void execute(const command& what);
  void end_alone(int exit_code, const std::string& report);
  void end_if_ranks_have();
  void expect_end();
  void ask_clock();

  boost::asio::io_context& loop_;
  const options& options_;
  hello own_;
  std::function<void(const command&)> execute_;
  boost::asio::steady_timer patience_;
  std::chrono::milliseconds grace_{0};  // as node 0 has said
  // The quickest answer is the most accurate.
  int clock_answers_ = 0;
  std::int64_t best_round_trip_ns_ = 0;
  std::int64_t clock_offset_ns_ = 0;
  bool ranks_run_ = false;
  bool stop_wanted_ = false;  // here
  bool stopping_ = false;
  bool over_ = false;                     // node 0 has said so, or has gone
  int asked_signal_ = 0;                  // by which the user here asked for an end; 0: none
  std::optional<outcome> first_failure_;  // here, in case only this node can report it
  // How it ends here without node 0, once the ranks have ended.
  std::optional<job_over> alone_;
  // To the end: where it closes, node 0 takes the ranks here for ended.
  std::unique_ptr<bootstrap::control_link> link_;
  bootstrap::control_caller caller_;
};

}  // namespace tutti::launch
