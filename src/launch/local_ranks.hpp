// SPDX-License-Identifier: Apache-2.0
// The ranks of this node, through one start of the job after the other: starts them, stops them with a grace,
// and knows when the last thing they left behind has gone.
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
#include "launch/children.hpp"
#include "launch/job_output.hpp"
#include "launch/node_messages.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"
#include "launch/plan.hpp"
#include "launch/rank_environment.hpp"
#include "launch/rank_records.hpp"

namespace tutti::launch {

class local_ranks {
 public:
  struct handlers {
    // A rank has failed, not because it was stopped; whether others still run; the number of the restart that
    // follows, from 1, or 0.
    std::function<void(const outcome&, bool others_run, int restart)> failed;
    // Idle again.
    std::function<void()> ended;
    // Told where nodes come and go, of every end.
    std::function<void(const process_ended&)> process_ended;
    // Told where there are other nodes.
    std::function<void(const children::halt&)> halted;
  };
  // Forks a guardian: to be made early, while there is little to copy.
  local_ranks(boost::asio::io_context& loop, const options& o, std::string path, std::string secret,
              handlers to);

  // Once, before the first start.
  void write_to(job_output& output) { output_ = &output; }

  // Only when idle. `store` is the socket for rank 0, or empty. Throws std::runtime_error when a rank cannot
  // be started; those that were are then killed, and `ended` is called as ever.
  void start(const plan& p, base::unique_fd store);
  // Asks for an end, at first with the grace to follow; when idle, nothing happens.
  void stop(int signal);
  void kill();
  // A signal that does not ask for an end.
  void pass_on(int signal) { children_.signal_all(signal); }
  // At SIGCHLD.
  void child_changed();
  // The single rank, which has the terminal, has stopped since the last call.
  bool stopped_by_terminal() const noexcept { return lends_terminal_ && children_.only_one_stopped(); }
  // Stops as the job does, so that a shell sees it, and goes on with it; `stop_self` returns when continued.
  void suspend(const std::function<void()>& stop_self);

  // What the ranks have put on record.
  const rank_records& records() const { return records_; }

  bool idle() const { return phase_ == phase::idle; }
  // Of the last start, in the order in which they came.
  const std::vector<outcome>& ends() const { return ends_; }
  // A single rank has the launcher's own streams, with no pipes in between...
  bool direct() const { return direct_; }
  // ...and its terminal.
  bool lends_terminal() const { return lends_terminal_; }

 private:
  enum class phase { idle, running, stopping, killing, draining };

  void start_rank(int local_rank, const rank_environment& environment, const base::unique_fd& null);
  // Whether a rank that has ended so is to join the others again.
  bool comes_again(const outcome& end) const;
  void start_again(int rank);
  void on_rank_end(outcome end);
  void on_children_changed();
  void give_up();
  void finish();

  const options& options_;
  std::string path_;
  std::string secret_;
  handlers to_;
  std::optional<rlimit> descriptor_limit_;  // what the ranks get, where the launcher itself needed more
  children children_;
  rank_records records_;
  job_output* output_ = nullptr;
  boost::asio::steady_timer deadline_;  // of the grace, then of the kernel to carry out SIGKILL
  bool direct_;
  bool lends_terminal_;

  phase phase_ = phase::idle;
  plan plan_;
  bool asked_rest_ = false;  // what the ranks left behind was asked to end, too
  std::vector<outcome> ends_;
  base::unique_fd store_;           // for rank 0; kept while it may come again
  std::vector<int> restarts_;       // by local rank, in this start
  std::vector<int> to_come_again_;  // ranks that have ended, and are about to be started anew
};

}  // namespace tutti::launch
