// SPDX-License-Identifier: Apache-2.0
// job: a job as the launcher of one node sees it: its ranks, its output, the user's signals, and the
// coordination of all nodes (also on a single node).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>

#include "launch/coordination.hpp"
#include "launch/job_output.hpp"
#include "launch/job_trace.hpp"
#include "launch/local_ranks.hpp"
#include "launch/node_messages.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

class job {
 public:
  // `path` is the executable file. Throws usage_error, std::runtime_error or std::system_error for what
  // prevents a start.
  job(const options& o, std::string path);

  // Returns the exit code when all is over and all output has left.
  int run();

 private:
  void execute(const command& what);
  void execute_one(const start_ranks& what);
  void execute_one(const stop_ranks& what) { ranks_.stop(what.signal); }
  void execute_one(const kill_ranks&);
  void execute_one(const job_over& what);
  void execute_one(const tell_records&);
  void execute_one(const rank_stopped& what);
  void execute_one(const clock_told&);

  void listen();
  void on_signal(int signal);
  void on_ranks_ended();
  void watch_for_silence();
  void stop_all(stop_wanted::reason why, int signal);
  // Whether the single rank is a program like any that the shell starts, and the user has seen it end.
  bool needs_no_text() const;

  const options& options_;
  std::string secret_;
  boost::asio::io_context loop_{1};
  local_ranks ranks_;
  job_output output_;
  std::unique_ptr<job_trace> trace_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer timeout_;
  boost::asio::steady_timer silence_;  // until the ranks are checked again
  std::uint64_t progress_ = 0;         // as of the last check
  std::chrono::steady_clock::time_point progress_at_{};
  bool silence_said_ = false;
  std::unique_ptr<coordination> above_;
  int interrupts_ = 0;
  bool stop_wanted_ = false;  // by this node: no further start begins here
  bool over_ = false;
  int exit_code_ = 0;
};

// Runs a job in this process and returns its exit code. Throws as job's constructor.
int run_job(const options& o, const std::string& path);

}  // namespace tutti::launch
