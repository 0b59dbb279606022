// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/starters.hpp"

#include "base/env.hpp"
#include "base/process_state.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <climits>

namespace tutti::bootstrap {
namespace {

using base::env_string;

setting read_setting(const char* variable, int low) {
  const auto value = base::env_integer(variable, low, INT_MAX);
  if (!value) return {};
  return {static_cast<int>(*value), fmt::format("{}={}", variable, *value)};
}

place read_place(const char* rank, const char* size, const char* local_rank, const char* local_size) {
  place p;
  p.rank = read_setting(rank, 0);
  p.size = read_setting(size, 1);
  p.local_rank = read_setting(local_rank, 0);
  p.local_size = read_setting(local_size, 1);
  if (p.local_size.value && p.size.value) {
    p.one_host = *p.local_size.value == *p.size.value;
    p.several_hosts = *p.local_size.value < *p.size.value;
  }
  return p;
}

// The values of the variables that are set, with their names; empty if none is.
std::string joined(std::string_view starter, std::initializer_list<const char*> variables) {
  std::string all;
  for (const char* variable : variables)
    if (const auto value = env_string(variable)) all += fmt::format("/{}", *value);
  return all.empty() ? all : fmt::format("{}{}", starter, all);
}

bool is_true(const char* variable) {
  const std::string value = env_string(variable).value_or("");
  return value == "1" || value == "True" || value == "true";
}

// ---- RANK and WORLD_SIZE: tutti-run, torchrun, people ----

place ours() {
  place p = read_place("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  // Ranks that are restarted one by one belong to the same world.
  p.job = is_true("TUTTI_REJOIN") || env_string("TUTTI_ELASTIC")
              ? joined("job", {"TUTTI_JOB_ID"})
              : joined("job", {"TUTTI_JOB_ID", "TUTTI_RESTART_COUNT"});
  if (env_string("TORCHELASTIC_RUN_ID")) {
    // A run's name may be that of every run ("none" is the default); the address where its agents meet is not.
    p.job += joined("torchrun",
                    {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
    p.master_port_taken = is_true("TORCHELASTIC_USE_AGENT_STORE");
  }
  p.job_on_host = p.job;
  return p;
}

// ---- Open MPI ----

place open_mpi() {
  place p = read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                       "OMPI_COMM_WORLD_LOCAL_SIZE");
  p.pass_variables = "mpirun -x MASTER_ADDR=… -x MASTER_PORT=… -x TUTTI_SECRET";
  // The first two say the same, in different versions. The name of a job may come back; with the address of
  // its mpirun it does not.
  p.job = env_string("PMIX_NAMESPACE")
              ? joined("openmpi", {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"})
              : joined("openmpi", {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"});
  p.job_on_host = p.job;
  return p;
}

// ---- MPICH, Intel MPI, MVAPICH: Hydra and others that speak PMI ----

// The process at the other end of an inherited socket, by its number and when it started: two that follow
// each other differ. Empty: unknown.
std::string other_end(const char* variable) {
  const auto fd = base::env_integer(variable, 0, INT_MAX);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (!fd || ::getsockopt(static_cast<int>(*fd), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
      peer.pid <= 0)
    return {};
  const std::uint64_t start = base::start_of_process(peer.pid);
  return start == 0 ? "" : fmt::format("{}/{}", peer.pid, start);
}

place pmi() {
  place p = read_place("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  p.pass_variables = "mpirun -genv MASTER_ADDR … -genv MASTER_PORT … -genv TUTTI_SECRET …";
  if (!p.rank.value) return p;
  p.job = p.job_on_host = joined("pmi", {"PMI_JOBID", "PMI_PORT"});
  if (p.job.empty()) {
    // Hydra has no name for its jobs, but one process on each host to which all ranks there have a socket.
    for (const char* variable : {"PMI_FD", "HYDI_CONTROL_FD"}) {
      const std::string proxy = other_end(variable);
      if (proxy.empty()) continue;
      p.job_on_host = fmt::format("hydra/{}", proxy);
      break;
    }
  }
  return p;
}

// ---- Slurm ----

// The n-th number of "4(x2),3": 4, 4, 3.
std::optional<int> tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    int tasks = 0, nodes = 1;
    const auto [end, code] = std::from_chars(item.data(), item.data() + item.size(), tasks);
    if (code != std::errc{}) return std::nullopt;
    const std::string_view rest = item.substr(static_cast<std::size_t>(end - item.data()));
    if (rest.starts_with("(x") &&
        std::from_chars(rest.data() + 2, rest.data() + rest.size(), nodes).ec != std::errc{})
      return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

const char* first_set(std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (env_string(variable)) return variable;
  return *variables.begin();
}

place slurm() {
  const char* const step = first_set({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!env_string(step)) return {};  // a batch script, or a shell in an allocation: srun has not started this
  place p;
  p.rank = read_setting("SLURM_PROCID", 0);
  p.size = read_setting(first_set({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}), 1);
  p.local_rank = read_setting("SLURM_LOCALID", 0);
  const setting node = read_setting("SLURM_NODEID", 0);
  const auto tasks = env_string(first_set({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  if (node.value && tasks)
    if (const auto local = tasks_of_node(*tasks, *node.value); local && *local > 0)
      p.local_size = {local, fmt::format("SLURM_STEP_TASKS_PER_NODE={}", *tasks)};
  const setting nodes =
      read_setting(first_set({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}), 1);
  p.one_host = nodes.value && *nodes.value == 1;
  p.several_hosts = nodes.value && *nodes.value > 1;
  if (env_string("SLURM_JOB_ID"))
    p.job = p.job_on_host = joined("slurm", {"SLURM_JOB_ID", step, "SLURM_RESTART_COUNT"});
  const auto hosts = env_string(first_set({"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}));
  p.pass_variables =
      fmt::format("srun --export=ALL,MASTER_ADDR={},MASTER_PORT=29500,TUTTI_SECRET=$(openssl rand -hex 32)",
                  hosts ? first_host(*hosts) : "…");
  return p;
}

// ---- the choice among them ----

void refuse_contradiction(const place& a, const place& b, const char* cure) {
  if (!a.rank.value || !b.rank.value || !a.size.value || !b.size.value) return;
  const bool same_rank = *a.rank.value == *b.rank.value;
  if (same_rank && *a.size.value == *b.size.value) return;
  refuse(
      "{} and {} contradict each other: one starter was started by another, and has handed on what was "
      "meant for itself; {}",
      same_rank ? a.size.from : a.rank.from, same_rank ? b.size.from : b.rank.from, cure);
}

bool same_place(const place& a, const place& b) {
  return a.rank.value && a.size.value && a.rank.value == b.rank.value && a.size.value == b.size.value;
}

}  // namespace

std::string first_host(std::string_view list) {
  std::string host;
  while (!list.empty()) {
    const std::size_t at = list.find_first_of("[,");
    host += list.substr(0, at);
    if (at == list.npos || list[at] == ',') break;
    const std::string_view numbers = list.substr(at + 1);
    host += numbers.substr(0, numbers.find_first_of("-,]"));
    const std::size_t end = numbers.find(']');
    list = end == numbers.npos ? std::string_view() : numbers.substr(end + 1);
  }
  return host;
}

place find_place() {
  place mine = ours();
  const place from_open_mpi = open_mpi(), from_slurm = slurm();
  place from_pmi = pmi();
  // srun speaks PMI too; its own variables say more.
  if (!from_pmi.local_size.value && same_place(from_pmi, from_slurm)) from_pmi = from_slurm;
  refuse_contradiction(from_open_mpi, from_pmi,
                       "unset OMPI_COMM_WORLD_RANK or PMI_RANK, whichever is not of this program's "
                       "own mpirun");
  if (mine.rank.value) {
    constexpr const char* cure =
        "unset RANK and WORLD_SIZE if mpirun has started this program, or else the other one";
    refuse_contradiction(mine, from_open_mpi, cure);
    refuse_contradiction(mine, from_pmi, cure);
    return mine;
  }
  for (place theirs : {from_open_mpi, from_pmi, from_slurm}) {
    if (!theirs.rank.value) continue;
    if (mine.size.value && theirs.size.value && *mine.size.value != *theirs.size.value)
      refuse("{} and {} contradict each other: unset WORLD_SIZE, or set RANK as well", theirs.size.from,
             mine.size.from);
    if (mine.size.value) theirs.size = mine.size;
    return theirs;
  }
  return mine;
}

}  // namespace tutti::bootstrap
