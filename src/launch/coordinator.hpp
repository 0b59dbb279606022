// SPDX-License-Identifier: Apache-2.0
// coordinator: decides about the job as a whole on node 0, from what the nodes report: when it starts, what
// stops it, whether it starts again, and how it ended. No input or output: its owner carries messages and
// keeps time.
//
//   joining ── all nodes are here ──> running ── a failure, a signal, a lost node ──> stopping
//      │                               │  ^                                              │
//      │                               │  └─────────── another start ────────────────────┤
//      └─ a signal, a lost node ──> over <── all ranks of all nodes have ended ──────────┘
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/node_messages.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

// How a node leaves by itself, if the others can go on.
struct departure {
  int exit_code = 0;
  std::string why;  // "it was stopped by SIGTERM"
};
// nullopt: this event is no reason for it. The launcher was told to end, or a rank has failed and is not started again.
std::optional<departure> departure_by(const event& what, failure_policy on_failure);

class coordinator {
 public:
  struct outlets {
    std::function<void(int node, const command&)> send;
    std::function<void(std::string_view)> say;  // lines for the user of node 0
    // Opens the store of a start, which no earlier one has used. Throws std::runtime_error.
    std::function<rank_0_ports()> open_store;
    // Asks for a call of overdue() after this time, unless the job is over or this is called again; 0: none.
    std::function<void(std::chrono::milliseconds)> expect_end;
  };
  coordinator(const options& o, std::string job_id, outlets to);

  // A node has come. If it cannot be part of this job, returns why, for its user and for that of node 0.
  std::optional<std::string> join(const hello& who);
  std::vector<int> missing() const;
  // Goes on with a job that another launcher has coordinated, from this node on, whose ranks run. Then join() takes the
  // nodes whose ranks run as well.
  void take_over(const hello& own);

  void on(int node, const event& what);
  // Nothing more will be heard from that node.
  void lost(int node, const std::string& why);
  // Ends everything with this text: there will be no job.
  void abandon(int exit_code, const std::string& why);
  // The other nodes that have not reported the end of their ranks will not.
  void overdue();

  // Where nodes come and go: the ranks of the running world have finished, and waiting ones will not be
  // admitted.
  void work_done() {
    if (phase_ == phase::running) stop(reason::none, SIGTERM, -1);
  }
  // The ranks cannot meet again, for this reason.
  void no_further_world(const std::string& why);
  // Returns a number for a node that comes without one; -1 if there are as many as allowed.
  int free_number() const;

  int ranks_of(int node) const { return nodes_.at(node).who.ranks; }
  bool joining() const { return phase_ == phase::joining; }
  bool running() const { return phase_ == phase::running; }
  bool over() const { return phase_ == phase::over; }
  // "node 1 (ranks 4-7 on hostB)".
  std::string describe_node(int node) const;

 private:
  enum class phase { joining, running, stopping, over };
  // What stops the ranks. none: nothing, or the end of all work. wanted: what `wanted_` says.
  enum class reason { none, failure, node_lost, wanted };
  using clock = std::chrono::steady_clock;

  // How a job ends that is stopped by a node's wish, whatever its ranks did.
  struct ending {
    int exit_code = 0;
    std::string text;
    bool lists_killed = false;
    int unread_node = -1;  // whose user does not get the text
  };

  struct node_state {
    bool joined = false;
    bool ended = false;  // its ranks of this start
    bool lost = false;
    hello who;
    int first_rank = -1;  // -1: not yet
    clock::time_point told_to_start{};
    bool leaving = false;  // its ranks are being stopped, and the others go on
    departure leaves;
    ranks_ended told;  // with times from the start of the job, not of the node
    bool stays() const { return joined && !leaving && !lost; }
    bool finished() const { return !joined || ended || lost; }
  };

  void start(std::string notice);
  void number_ranks(node_state& node);
  void start_newcomer(int node);
  // Whether the others go on when a node leaves.
  bool may_go(int node) const {
    return options_.elastic && node != own_ && (phase_ == phase::joining || phase_ == phase::running);
  }
  void leave(int node, departure how);
  void release(int node);
  void stop(reason why, int signal, int but_for);
  // To the nodes whose ranks have not ended.
  void send_running(const command& what, int but_for);
  void try_conclude();
  void conclude();

  void on_event(int node, const rank_failed& e);
  void on_event(int node, const stop_wanted& e);
  void on_event(int node, const kill_wanted& e);
  void on_event(int node, const ranks_ended& e);
  void on_event(int node, const rank_stopped& e) { send_running(e, node); }
  void on_event(int, const process_ended& e) {
    if (e.well && !finished_rank_) finished_rank_ = e.rank;
  }
  template <class Other>
  void on_event(int, const Other&) {}  // head_node answers it

  bool several() const { return nodes_.size() > 1; }
  int node_of(int rank) const;
  outcome since_start(int node, outcome end) const;
  ending ending_of(int node, const stop_wanted& e) const;
  std::vector<outcome> all_ends() const;
  std::string place_of(int rank) const;
  std::string report(const std::vector<outcome>& ends, const outcome* cause, int node) const;
  int exit_code(const outcome* cause) const;

  const options& options_;
  outlets to_;
  int own_ = 0;                      // the node with this launcher
  std::map<int, node_state> nodes_;  // all, by number
  start_ranks plan_;                 // of this start, for the node that was told last
  clock::time_point started_at_{};

  phase phase_ = phase::joining;
  reason reason_ = reason::none;
  ending wanted_;
  std::optional<int> finished_rank_;  // the first of this start, as far as nodes report it
  std::optional<outcome> first_failure_;
  clock::time_point first_failure_at_{};
  // Nodes that have gone, in that order, with the reasons.
  std::vector<std::pair<int, std::string>> losses_;
};

}  // namespace tutti::launch
