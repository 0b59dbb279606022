// SPDX-License-Identifier: Apache-2.0
// rank_environment: the environment that a rank is started with: the launcher's own, plus the rank's place in
// the job.
#pragma once

#include <string>
#include <vector>

#include "launch/node_messages.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

// Returns the secret of the job: from --secret-fd or TUTTI_SECRET, or a random one for one node. Throws
// usage_error if several nodes share none.
std::string job_secret(const options& o);

// "NAME=value" for each variable of a rank. `store_fd` is the number of the store's socket, or -1 for a rank
// that does not get it.
std::vector<std::string> environment_of_rank(const options& o, const start_ranks& p,
                                             const std::string& secret, int local_rank, int store_fd);

}  // namespace tutti::launch
