// SPDX-License-Identifier: Apache-2.0
// The messages between the launchers of a job's nodes. Node 0 commands; the others introduce themselves and
// report on their ranks. Node 0's own ranks use the same messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flight/snapshot.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"

namespace tutti::launch {

// ---- a node's first message ----

// A rank of a node, as its launcher knows it.
struct rank_state {
  int start = 0;  // of the rank, from 0
  bool runs = true;
  bool well = false;  // it has ended with exit code 0
};

struct hello {
  int nodes = 0;  // as in its command line
  int node = 0;   // -1: node 0 says
  int ranks = 0;
  std::string host;
  int pid = 0;
  // Where launchers meet in etcd:
  std::string id = {};  // in the list of launchers
  int first_rank = -1;  // it has drawn numbers from here on for its ranks
  std::vector<rank_state> run =
      {};  // they run, and another launcher has coordinated so far; empty: they do not
};

// ---- commands of node 0 ----

// On node 0, for one start.
struct rank_0_ports {
  int store = 0;   // where the ranks meet
  int master = 0;  // MASTER_PORT: kept free for the program, such as PyTorch's store
};

// One start of the job, as node 0 plans it for one node.
struct start_ranks {
  std::string job_id;
  int restart_count = 0;  // starts of the same job before this one
  int max_restarts = 0;
  int world_size = 0;
  int first_rank = 0;  // of this node
  rank_0_ports ports;
  int node = 0;           // as node 0 has numbered it
  bool newcomer = false;  // of a job that already runs
  failure_policy on_failure = failure_policy::stop;
  std::chrono::milliseconds grace{0};
  // Of a job whose nodes come and go:
  int least_nodes = 1;
  bootstrap::quorum quorum = bootstrap::quorum::none;
  std::string notice;  // lines for the user before the ranks start; empty: none
};
// Stops by a signal that asks for an end; the grace period, then SIGKILL, are the node's own affair.
struct stop_ranks {
  int signal = 0;
};
struct kill_ranks {};
// The job is over: print the report, end with the code.
struct job_over {
  int exit_code = 0;
  std::string report;
};
// Asks for the records of the ranks.
struct tell_records {};
// Sent and passed on: this process of a rank has been stopped (SIGSTOP, a debugger), or continued. Ranks of
// other nodes cannot see that.
struct rank_stopped {
  int rank = 0;
  int pid = 0;
  bool stopped = false;
};
// The answer to clock_asked: node 0's clock at that time, in nanoseconds. The node itself is told by this what its
// quickest answer says.
struct clock_told {
  std::int64_t asked_ns = 0;
  std::int64_t clock_ns = 0;
};
using command =
    std::variant<start_ranks, stop_ranks, kill_ranks, job_over, tell_records, clock_told, rank_stopped>;

// ---- reports of nodes ----

// Sent at once. Unless the others are to go on, or the rank is restarted, the node is already stopping its
// other ranks.
struct rank_failed {
  outcome end;
  bool others_run = false;  // on this node
  int restart = 0;          // the number of the restart that follows, from 1; 0: none
};
// Where nodes come and go or a rank may be restarted: a process of a rank has ended, for any reason.
struct process_ended {
  int rank = 0;
  int start = 0;       // of the rank on this node, from 0
  bool well = false;   // with exit code 0
  bool again = false;  // the rank is restarted
};
// The node has seen a reason to stop the whole job, and is already stopping its ranks.
struct stop_wanted {
  enum class reason : std::uint8_t { signal, timeout, reader_gone, cannot_start };
  reason why = reason::signal;
  int signal = 0;    // the signal that came, for `signal`
  std::string text;  // for `cannot_start`
};
// The user does not want to wait for the grace period.
struct kill_wanted {};
// All ranks of this start have ended, and no process of theirs is left.
struct ranks_ended {
  std::vector<outcome> ends;  // in the order in which they came
  // On the standard error of the one that failed first; empty if the user has just seen them.
  std::vector<std::string> last_lines;
  std::string last_operations;  // of that one, as lines, the newest first; empty if none is known
};
// Asks for node 0's clock, with this node's own.
struct clock_asked {
  std::int64_t asked_ns = 0;
};
// A user wants to know who waits for whom.
struct explanation_wanted {};
// The answer to tell_records, in several parts: one for each rank.
struct records_told {
  std::vector<flight::rank_snapshot> ranks;
  bool last = true;
};
using event = std::variant<rank_failed, stop_wanted, kill_wanted, ranks_ended, explanation_wanted,
                           records_told, clock_asked, rank_stopped, process_ended>;

std::string encode(const hello& message);
std::string encode(const command& message);
std::string encode(const event& message);
// These throw tutti::error (errc::protocol) on what encode() does not make, for example in another version of
// tutti-run.
hello decode_hello(std::string_view message);
command decode_command(std::string_view message);
event decode_event(std::string_view message);

}  // namespace tutti::launch
