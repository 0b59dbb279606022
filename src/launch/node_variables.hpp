// SPDX-License-Identifier: Apache-2.0
// Which node of how many this is, as told by whatever started one tutti-run on each node. The variables
// replace the options -n, --nnodes, --node-rank and --master that are not given.
#pragma once

#include <string>
#include <string_view>

#include "launch/options.hpp"

namespace tutti::launch {

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

inline constexpr int usual_master_port = 29500;  // where no variable says which

// "3", or "1:4" of a job whose nodes may come and go, into `o`. Throws usage_error, which names `from`:
// the option or the variable with its value.
void parse_nodes(std::string_view given, const std::string& from, options& o);

// Options that the command line has set.
struct given_options {
  bool ranks = false;
  bool nodes = false;
  bool node_rank = false;
};

// Sets in `o` what `given` lacks, and the master if `o` has none, from the variables; in `given`, the ranks and
// the node's rank that were found. Variables of a single node, and inside a rank of another job, change
// nothing. Throws usage_error for a malformed variable and for two that contradict each other, by their names.
void take_node_variables(options& o, given_options& given);

}  // namespace tutti::launch
