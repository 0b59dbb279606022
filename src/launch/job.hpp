// SPDX-License-Identifier: Apache-2.0
// Supervision of one job on one node: starts its ranks, passes signals on, decides when the job is over and
// how it ended.
//
//   running ── a failure, a signal, the timeout, no reader ──> stopping ── grace over ──> killing
//      └─────── all ranks ended ────────────────────> draining <───────────────┴──────────────┘
#pragma once

#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/children.hpp"
#include "launch/job_output.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"
#include "launch/rank_environment.hpp"
#include "launch/store_socket.hpp"

namespace tutti::launch {

class job {
 public:
  // `path` is the executable file. Throws usage_error, std::runtime_error or std::system_error for what
  // prevents a start.
  job(const options& o, std::string path);

  // Returns the exit code when all is over and all output has left.
  int run();

 private:
  enum class phase { running, stopping, killing, draining };
  enum class reason { none, failure, signal, timeout, reader_gone };

  void start_ranks();
  void start_rank(int local_rank, const base::unique_fd& null);
  void listen();

  void on_signal(int signal);
  void on_rank_end(outcome end);
  void on_children_changed();
  void suspend();

  void stop(reason why, int signal);
  void kill();
  void give_up();
  void finish();
  std::string report() const;
  int exit_code() const;

  const options& options_;
  std::string path_;
  std::optional<rlimit> descriptor_limit_;  // what the ranks get, where the launcher itself needed more
  boost::asio::io_context loop_{1};
  children children_;  // forks its guardian: early, while there is little to copy
  store_socket store_;
  rank_environment environment_;
  job_output output_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer timeout_;
  boost::asio::steady_timer deadline_;  // of the grace, then of the kernel to carry out SIGKILL

  // A single rank has the launcher's own streams, with no pipes in between, and its terminal.
  bool direct_;
  bool lends_terminal_;

  phase phase_ = phase::running;
  reason reason_ = reason::none;
  int stop_signal_ = 0;      // by which the ranks were asked to end; 0: none yet
  bool asked_rest_ = false;  // what they left behind was asked too
  int interrupts_ = 0;
  std::vector<outcome> ends_;  // in the order in which they came
};

}  // namespace tutti::launch
