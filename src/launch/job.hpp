// SPDX-License-Identifier: Apache-2.0
// A job as the launcher of one node sees it: its ranks, its output, the user's signals, and the coordination of all
// nodes (also on a single node).
#pragma once

#include <string>

#include "launch/options.hpp"

namespace tutti::launch {

// Runs a job of the executable file at `path` in this process. Returns its exit code when all is over and all output
// has left. Throws usage_error, std::runtime_error or std::system_error for what prevents a start.
int run_job(const options& o, const std::string& path);

// --check: checks this node and the way to node 0, for at most `--join-timeout` or half a minute, and prints the
// findings. Never shows the secret. Returns 0 if nothing would stop a job, else 1.
int run_check(const options& o);

}  // namespace tutti::launch
