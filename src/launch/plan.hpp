// SPDX-License-Identifier: Apache-2.0
// plan: one start of the job, as node 0 plans it for one node.
#pragma once

#include <chrono>
#include <string>

#include "launch/options.hpp"

namespace tutti::launch {

struct plan {
  std::string job_id;
  int restart_count = 0;  // starts of the same job before this one
  int max_restarts = 0;
  int world_size = 0;
  int first_rank = 0;     // of this node
  int store_port = 0;     // on node 0
  int node = 0;           // as node 0 has numbered it
  bool newcomer = false;  // of a job that already runs
  failure_policy on_failure = failure_policy::stop;
  std::chrono::milliseconds grace{0};
  std::string notice;  // lines for the user before the ranks start; empty: none
};

}  // namespace tutti::launch
