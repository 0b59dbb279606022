// SPDX-License-Identifier: Apache-2.0
// local_ranks: the ranks of this node through all starts of the job: starts them, stops them with a grace
// period, and knows when the last of their processes has gone.
//
//   idle ── start ──> running ── stop ──> stopping ── grace over, kill ──> killing
//    ^                   └────────── all ranks ended ────────┴────────────────┴──> draining ──┐
//    └─────────────────────────── all they wrote has been passed on ──────────────────────────┘
#pragma once

#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "bootstrap/store_handover.hpp"
#include "launch/children.hpp"
#include "launch/job_output.hpp"
#include "launch/node_messages.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"
#include "launch/rank_records.hpp"

namespace tutti::launch {

class local_ranks {
 public:
  // Forks a guardian: construct it early, while there is little to copy. `output` may be constructed later, but
  // before the first start. `tell` is called with rank_failed, process_ended, if there are other nodes
  // rank_stopped, and with ranks_ended when it is idle again.
  local_ranks(boost::asio::io_context& loop, const options& o, std::string path, std::string secret,
              job_output& output, std::function<void(const event&)> tell);

  // Starts the ranks; requires that it is idle. `store` is the socket for rank 0, or empty; `store_relay` is the
  // port of one. Throws std::runtime_error if a rank cannot be started. Those already started are then killed, and
  // ranks_ended is told as always.
  void start(const start_ranks& p, base::unique_fd store, int store_relay);
  // Asks the ranks to end, first with the grace period to follow. Does nothing when idle. The rank whose main
  // has just thrown first is asked later: it is telling the others why, and ends by itself.
  void stop(int signal);
  void kill();
  // Passes on a signal that does not ask for an end.
  void pass_on(int signal) { children_.signal_all(signal); }
  // Call it at SIGCHLD. Returns whether the single rank, which has the terminal, has stopped (Ctrl-Z, or a read from
  // a terminal that is not its own).
  bool child_changed();
  // Stops as the job does, so that a shell sees it, and continues with it; `stop_self` returns when
  // continued.
  void suspend(const std::function<void()>& stop_self);

  // What the ranks have recorded.
  const rank_records& records() const { return records_; }

  // Whether the single rank is a program like any that the shell starts, and the user has seen it end.
  bool seen_to_end() const;

 private:
  enum class phase { idle, running, stopping, killing, draining };

  void start_rank(int local_rank);
  // Whether a rank that has ended in this way is to join the others again.
  bool comes_again(const outcome& end) const;
  void start_again(const outcome& before);
  void on_rank_end(outcome end);
  void on_children_changed();
  void finish();

  const options& options_;
  std::string path_;
  std::string secret_;
  std::function<void(const event&)> tell_;
  std::optional<rlimit> descriptor_limit_;  // the ranks' limit, if the launcher has raised its own
  children children_;
  const std::vector<rank_place> places_;  // by local rank
  rank_records records_;
  job_output& output_;
  boost::asio::steady_timer deadline_;  // of the grace period, then of the kernel to carry out SIGKILL
  boost::asio::steady_timer spared_;    // to ask that rank, too
  bool direct_;          // a single rank has the launcher's own streams, with no pipes in between
  bool lends_terminal_;  // a single rank has the terminal

  phase phase_ = phase::idle;
  start_ranks plan_;
  bool asked_rest_ = false;    // processes left by the ranks were asked to end, too
  std::vector<outcome> ends_;  // of this start, in order
  base::unique_fd store_;      // for rank 0; kept until it has ended for good
  int store_relay_ = 0;        // its port, 0: none
  std::vector<int> restarts_;  // by local rank, in this start
  int to_come_again_ = 0;      // ranks that are about to be restarted
  bootstrap::store_handover handover_;
};

}  // namespace tutti::launch
