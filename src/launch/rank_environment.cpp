// SPDX-License-Identifier: Apache-2.0
#include "launch/rank_environment.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/env.hpp"

namespace tutti::launch {
namespace {

constexpr std::size_t secret_bytes = 32;
constexpr std::size_t job_id_bytes = 8;

std::string random_hex(std::size_t bytes) {
  std::array<unsigned char, secret_bytes> raw;
  if (::getrandom(raw.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += fmt::format("{:02x}", raw[i]);
  return text;
}

std::string secret(const options& o) {
  if (auto given = base::env_string("TUTTI_SECRET")) return *given;
  if (o.nodes > 1)
    throw usage_error(
        "a job over several nodes needs a secret that all its launchers know: make one, for example with "
        "`openssl rand -hex 32`, and set TUTTI_SECRET to it on every node");
  return random_hex(secret_bytes);
}

// A job inside a job is a job of its own, but the launchers of several nodes may have been given a common
// name; names of their own would set their ranks apart.
std::string job_id(const options& o) {
  if (o.nodes > 1) return base::env_string("TUTTI_JOB_ID").value_or("");
  return random_hex(job_id_bytes);
}

// What told this launcher its own place, as a rank of this or another starter, and is wrong for its ranks.
bool is_place_of_launcher(const std::string& variable) {
  const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
  constexpr std::string_view names[] = {"RANK",
                                        "LOCAL_RANK",
                                        "TUTTI_STORE_FD",
                                        "TUTTI_RESTART_COUNT",
                                        "TUTTI_MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "OMPI_COMM_WORLD_NODE_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names) ||
         name.starts_with("TORCHELASTIC_");
}

bool names(const std::string& variable, std::string_view name) {
  return variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=';
}

}  // namespace

rank_environment::rank_environment(const options& o, const host_and_port& store)
    : first_rank_(o.first_rank()) {
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!is_place_of_launcher(text)) common_.push_back(text);
  }
  set("WORLD_SIZE", std::to_string(o.world_size()));
  set("LOCAL_WORLD_SIZE", std::to_string(o.ranks));
  set("NODE_RANK", std::to_string(o.node_rank));
  set("NNODES", std::to_string(o.nodes));
  set("MASTER_ADDR", store.host);
  set("MASTER_PORT", std::to_string(store.port));
  set("TUTTI_JOB_ID", job_id(o));
  set("TUTTI_SECRET", secret(o));
}

void rank_environment::show_terminal(int columns) {
  set("TUTTI_TTY", "1");
  set("COLUMNS", std::to_string(columns));
}

void rank_environment::set(std::string_view name, std::string_view value) {
  const auto old =
      std::find_if(common_.begin(), common_.end(), [&](const std::string& v) { return names(v, name); });
  if (old != common_.end()) common_.erase(old);
  common_.push_back(fmt::format("{}={}", name, value));
}

std::vector<std::string> rank_environment::of_rank(int local_rank, int store_fd) const {
  std::vector<std::string> variables = common_;
  variables.push_back(fmt::format("RANK={}", first_rank_ + local_rank));
  variables.push_back(fmt::format("LOCAL_RANK={}", local_rank));
  if (store_fd >= 0) variables.push_back(fmt::format("TUTTI_STORE_FD={}", store_fd));
  return variables;
}

}  // namespace tutti::launch
