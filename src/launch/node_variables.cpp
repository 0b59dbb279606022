// SPDX-License-Identifier: Apache-2.0
#include "launch/node_variables.hpp"

#include <fmt/format.h>

#include "base/env.hpp"
#include "base/text.hpp"
#include "bootstrap/starters.hpp"

namespace tutti::launch {
namespace {

struct found_variable {
  const node_variable* row;
  std::string text;   // as it is set
  std::string value;  // what it means for the field
};

int number_of(const found_variable& v, int low, const char* option) {
  const auto number = base::to_number<int>(v.value);
  if (!number || *number < low)
    throw usage_error("{}={} is not a number from {} on: set it to one, or give {}", v.row->name, v.text, low,
                      option);
  return *number;
}

// srun has started one task on each node, or none. A batch script and a shell in an allocation also have
// Slurm's variables, but are no step.
bool is_slurm_step() {
  return (base::env_string("SLURM_STEP_ID") || base::env_string("SLURM_STEPID")) &&
         base::env_string("SLURM_STEP_NUM_NODES");
}

// Finds the variable for a field; several must agree. Null row: none is set.
found_variable find_variable(node_field field, const char* option) {
  found_variable found{nullptr, {}, {}};
  for (const node_variable& row : node_variables) {
    if (row.field != field) continue;
    const std::string_view starter = row.starter;
    if (starter == "Slurm" && !is_slurm_step()) continue;
    const auto text = base::env_string(row.name);
    if (!text) continue;
    const bool is_list = starter == "Slurm" && field == node_field::master_host;
    const found_variable next{&row, *text, is_list ? bootstrap::first_host(*text) : *text};
    if (found.row == nullptr) {
      found = next;
      continue;
    }
    if (found.value == next.value) continue;
    throw usage_error(
        "{}={} ({}) and {}={} ({}) contradict each other: unset the one that is not meant, or give {}",
        found.row->name, found.text, found.row->starter, row.name, next.text, starter, option);
  }
  return found;
}

// The same for a number, which goes to `into`.
found_variable take_number(node_field field, int low, const char* option, int& into) {
  const found_variable found = find_variable(field, option);
  if (found.row != nullptr) into = number_of(found, low, option);
  return found;
}

void refuse_several_launchers_on_a_node(int nodes) {
  const auto tasks = base::env_string("SLURM_STEP_NUM_TASKS");
  if (!is_slurm_step() || !tasks || *tasks == std::to_string(nodes)) return;
  throw usage_error(
      "SLURM_STEP_NUM_TASKS={} on SLURM_STEP_NUM_NODES={}: tutti-run is to be started once on each node, by "
      "srun --ntasks-per-node=1; for a job of its own in each task give --nnodes 1",
      *tasks, nodes);
}

}  // namespace

void parse_nodes(std::string_view given, const std::string& from, options& o) {
  const std::size_t colon = given.find(':');
  o.elastic = colon != std::string_view::npos;
  const auto least = base::to_number<int>(given.substr(0, colon));
  const auto most = o.elastic ? base::to_number<int>(given.substr(colon + 1)) : least;
  if (!least || !most)
    throw usage_error("{}: give a number of nodes, or MIN:MAX where nodes may come and go", from);
  o.nodes = *most;
  if (!o.elastic) return;
  o.least_nodes = *least;
  if (o.least_nodes < 1 || o.least_nodes > o.nodes)
    throw usage_error("{}: MIN is 1 or more, and MAX no less", from);
}

void take_node_variables(options& o, given_options& given) {
  // Ranks inherit the variables of the launcher above them.
  if (base::env_string("TUTTI_JOB_ID")) return;

  if (!given.ranks) given.ranks = take_number(node_field::ranks, 1, "-n", o.ranks).row != nullptr;
  if (!given.nodes) {
    const auto v = find_variable(node_field::nodes, "--nnodes");
    if (v.row == nullptr) return;
    if (v.value.find(':') != std::string::npos) {
      parse_nodes(v.value, fmt::format("{}={}", v.row->name, v.text), o);
    } else {
      const int nodes = number_of(v, 1, "--nnodes");
      if (nodes == 1) return;
      if (std::string_view(v.row->starter) == "Slurm") refuse_several_launchers_on_a_node(nodes);
      o.nodes = nodes;
    }
  }
  if (o.nodes == 1) return;
  if (!given.node_rank)
    if (const auto v = take_number(node_field::node_rank, 0, "--node-rank", o.node_rank); v.row != nullptr) {
      given.node_rank = true;
      if (o.node_rank >= o.nodes)
        throw usage_error(
            "{}={} ({}) is not one of the {} nodes, 0 to {}: correct it or the number of "
            "nodes, or give --nnodes and --node-rank",
            v.row->name, v.text, v.row->starter, o.nodes, o.nodes - 1);
    }
  if (o.master) return;
  const auto host = find_variable(node_field::master_host, "--master");
  if (host.row == nullptr) return;
  o.master = host_and_port{host.value, usual_master_port};
  const auto port = take_number(node_field::master_port, 1, "--master", o.master->port);
  if (o.master->port > 65535)
    throw usage_error("{}={}: a port is a number from 1 to 65535", port.row->name, port.text);
}

}  // namespace tutti::launch
