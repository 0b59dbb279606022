// SPDX-License-Identifier: Apache-2.0
// The environment that a rank is started with: the launcher's own, plus what tells the rank its place in the
// job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/options.hpp"

namespace tutti::launch {

class rank_environment {
 public:
  // Throws usage_error when several nodes share no secret.
  rank_environment(const options& o, const host_and_port& store);

  // The program may draw for a terminal so many columns wide, although it writes into a pipe.
  void show_terminal(int columns);
  // "NAME=value" for each variable. `store_fd` is the number of the store's socket, or -1 for a rank that
  // does not get it.
  std::vector<std::string> of_rank(int local_rank, int store_fd) const;

 private:
  void set(std::string_view name, std::string_view value);

  int first_rank_;
  std::vector<std::string> common_;
};

}  // namespace tutti::launch
