// SPDX-License-Identifier: Apache-2.0
// The checked command line of tutti-run, and what it asks for: every result can be carried out as it stands.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/membership.hpp"
#include "launch/binding.hpp"

namespace tutti::launch {

inline constexpr int most_ranks_per_node = 4096;

// restart_rank: restart only the failed rank, which joins the others again; restart_all: stop all first.
enum class failure_policy { stop, go_on, restart_rank, restart_all };
enum class tag_policy { automatic, always, never };

struct host_and_port {
  std::string host;
  int port = 0;
};

struct options {
  int ranks = 0;                                       // on this node
  int nodes = 1;                                       // at most, where they come and go
  bool elastic = false;                                // --nnodes MIN:MAX: nodes may come and go
  int least_nodes = 1;                                 // of such a job
  bootstrap::quorum quorum = bootstrap::quorum::none;  // of such a job
  int node_rank = 0;                                   // -1: node 0 says
  std::optional<host_and_port> master;
  std::string store;  // in etcd, where the launchers and ranks of such a job meet; empty: at node 0
  // Node 0 decides what all nodes do alike: its on_failure, max_restarts and grace period count for all.
  failure_policy on_failure = failure_policy::stop;
  int max_restarts = 0;
  binding bind = binding::none;
  tag_policy tag_output = tag_policy::automatic;
  std::string trace;                           // file; empty: none
  std::chrono::milliseconds explain_after{0};  // without progress; 0: never
  std::string log_dir;                         // empty: no log files
  bool check = false;                          // say what would stop a job, and start none
  bool status = false;                         // say what running jobs wait for, and start none
  bool quiet = false;                          // the ranks' output goes only to the log files
  std::chrono::milliseconds timeout{0};        // of the whole job; 0: none
  std::chrono::milliseconds grace{5000};
  std::chrono::milliseconds join_timeout{600000};  // for all nodes to come
  std::chrono::milliseconds node_timeout{10000};   // of a node's silence
  int secret_fd = -1;                              // from which the secret is read; -1: TUTTI_SECRET
  std::vector<std::string> program;                // its name as typed, then its arguments
};

// An invalid command line; the text says what to type instead.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class First, class... Others>
  explicit usage_error(fmt::format_string<First, Others...> text, First&& first, Others&&... others)
      : std::runtime_error(fmt::format(text, std::forward<First>(first), std::forward<Others>(others)...)) {}
};

// Not an error: the user asked for this text.
struct help_request {
  std::string text;
};

// Which node of how many this is, as told by whatever started one tutti-run on each node: these variables replace the
// options -n, --nnodes, --node-rank and --master that are not given.
enum class node_field { ranks, nodes, node_rank, master_host, master_port };

struct node_variable {
  const char* starter;
  node_field field;
  const char* name;
};

// docs/starters.md lists the same rows.
inline constexpr node_variable node_variables[] = {
    {"torchrun", node_field::ranks, "PET_NPROC_PER_NODE"},
    {"torchrun", node_field::nodes, "PET_NNODES"},
    {"torchrun", node_field::node_rank, "PET_NODE_RANK"},
    {"torchrun", node_field::master_host, "PET_MASTER_ADDR"},
    {"torchrun", node_field::master_port, "PET_MASTER_PORT"},
    {"LeaderWorkerSet", node_field::nodes, "LWS_GROUP_SIZE"},
    {"LeaderWorkerSet", node_field::node_rank, "LWS_WORKER_INDEX"},
    {"LeaderWorkerSet", node_field::master_host, "LWS_LEADER_ADDRESS"},
    {"Indexed Job", node_field::node_rank, "JOB_COMPLETION_INDEX"},
    {"Slurm", node_field::nodes, "SLURM_STEP_NUM_NODES"},
    {"Slurm", node_field::node_rank, "SLURM_NODEID"},
    {"Slurm", node_field::master_host, "SLURM_STEP_NODELIST"},  // its first host
};

// Throws usage_error or help_request.
options parse_options(int argc, const char* const* argv);

// The place in etcd of one run of the job: its ranks meet no others there, whatever an earlier run has left.
inline std::string store_of_run(const options& o, const std::string& run) { return o.store + "/" + run; }

// Runs a job of the executable file at `path` in this process. Returns its exit code when all is over and all output
// has left. Throws usage_error, std::runtime_error or std::system_error for what prevents a start.
int run_job(const options& o, const std::string& path);

// --status: prints what the ranks of the jobs on this node do or wait for: of those that the processes in `program` belong
// to, or of all if there are none. Returns 0 if there is such a job, else 1. Throws usage_error.
int run_status(const options& o);

// --check: checks this node and the way to node 0, for at most `--join-timeout` or half a minute, and prints the
// findings. Never shows the secret. Returns 0 if nothing would stop a job, else 1.
int run_check(const options& o);

}  // namespace tutti::launch
