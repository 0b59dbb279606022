// SPDX-License-Identifier: Apache-2.0
// The processes that hold a file's lock, for error texts.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tutti::bootstrap {

// Returns the processes of this host that hold a lock on byte 0 of the open file `fd`, in ascending order.
// All that share the locked descriptor count. Processes of other users, hosts and pid namespaces do not
// appear. Cost: reads the descriptors of every process of this user in /proc.
std::vector<pid_t> lock_holders(int fd);

// "process 77 (python3), which is stopped, and process 78 (python3)".
std::string list_of_processes(const std::vector<pid_t>& pids);

}  // namespace tutti::bootstrap
