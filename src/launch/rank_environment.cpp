// SPDX-License-Identifier: Apache-2.0
#include "launch/rank_environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>

#include "base/env.hpp"
#include "base/hmac.hpp"
#include "base/unique_fd.hpp"
#include "launch/terminal.hpp"

namespace tutti::launch {
namespace {

constexpr std::size_t secret_bytes = 32;
constexpr std::size_t longest_secret = 4096;

std::string read_secret(int fd) {
  const base::unique_fd source(fd);  // the ranks must not inherit it
  std::string text;
  std::array<char, longest_secret> buffer;
  for (;;) {
    const ssize_t bytes = ::read(source.get(), buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0)
      throw usage_error("--secret-fd {}: {}; open it for reading, as in --secret-fd 3 3<secret-file", fd,
                        std::strerror(errno));
    if (bytes == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(bytes));
    if (text.size() > longest_secret)
      throw usage_error("--secret-fd {}: a secret has at most {} bytes", fd, longest_secret);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || text.find('\0') != std::string::npos)
    throw usage_error("--secret-fd {}: a line of text is needed, for example of `openssl rand -hex 32`", fd);
  return text;
}

// Variables that told this launcher its own place, as a rank of a starter; they are wrong for its ranks.
bool is_place_of_launcher(std::string_view name) {
  constexpr std::string_view names[] = {"RANK",
                                        "LOCAL_RANK",
                                        "ROLE_RANK",
                                        "ROLE_WORLD_SIZE",
                                        "TUTTI_STORE_FD",
                                        "TUTTI_STORE_LISTENS",
                                        "TUTTI_FLIGHT",
                                        "TUTTI_RESTART_COUNT",
                                        "TUTTI_REJOIN",
                                        "TUTTI_ELASTIC",
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
  return std::ranges::find(names, name) != std::end(names) || name.starts_with("TORCHELASTIC_");
}

}  // namespace

std::string job_secret(const options& o) {
  if (o.secret_fd >= 0) return read_secret(o.secret_fd);
  if (auto given = base::env_string("TUTTI_SECRET")) return *given;
  if (o.nodes > 1)
    throw usage_error(
        "a job over several nodes needs a secret that all its launchers know: make one, for example with "
        "`openssl rand -hex 32`, and set TUTTI_SECRET to it on every node, or give it by --secret-fd");
  return base::random_hex(secret_bytes);
}

std::vector<std::string> environment_of_rank(const options& o, const start_ranks& p,
                                             const std::string& secret, int local_rank, int store_fd) {
  std::map<std::string, std::string> all;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (name.size() < text.size() && !is_place_of_launcher(name))
      all.try_emplace(std::string(name), text.substr(name.size() + 1));
  }
  all["WORLD_SIZE"] = std::to_string(p.world_size);
  all["LOCAL_WORLD_SIZE"] = std::to_string(o.ranks);
  all["NODE_RANK"] = std::to_string(p.node);
  all["NNODES"] = std::to_string(o.nodes);
  // torchrun's names for the same.
  all["GROUP_RANK"] = std::to_string(p.node);
  all["GROUP_WORLD_SIZE"] = std::to_string(o.nodes);
  // As this node knows node 0: hosts may have another name on another network.
  all["MASTER_ADDR"] = o.master ? o.master->host : "127.0.0.1";
  all["MASTER_PORT"] = std::to_string(p.store_port);
  // The launcher of node 0 has opened it, and keeps it as long as rank 0 may come.
  all["TUTTI_STORE_LISTENS"] = std::to_string(p.store_port);
  all["TUTTI_JOB_ID"] = p.job_id;
  all["TUTTI_RESTART_COUNT"] = std::to_string(p.restart_count);
  all["TUTTI_MAX_RESTARTS"] = std::to_string(p.max_restarts);
  if (o.elastic) {
    all["TUTTI_ELASTIC"] = p.newcomer ? "newcomer" : "first";
  } else if (p.on_failure == failure_policy::restart_rank) {
    all["TUTTI_REJOIN"] = "1";
  }
  all["TUTTI_SECRET"] = secret;
  // The program may draw for a terminal of this width, although it writes into a pipe.
  if (const int columns = output_terminal_columns(); columns > 0) {
    all["TUTTI_TTY"] = "1";
    all["COLUMNS"] = std::to_string(columns);
  }
  all["RANK"] = std::to_string(p.first_rank + local_rank);
  all["LOCAL_RANK"] = std::to_string(local_rank);
  if (store_fd >= 0) all["TUTTI_STORE_FD"] = std::to_string(store_fd);
  std::vector<std::string> variables;
  for (const auto& [name, value] : all) variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

}  // namespace tutti::launch
