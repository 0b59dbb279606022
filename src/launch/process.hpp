// SPDX-License-Identifier: Apache-2.0
// Starts one rank: a process group of its own, its standard streams, and its death with the launcher.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace tutti::launch {

class guardian;

struct process_spec {
  std::string path;  // of the executable file
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int input = -1;  // becomes standard input, output and error; -1: the launcher's own
  int output = -1;
  int error = -1;
  // Two more descriptors that the program keeps, under their numbers.
  int inherited = -1;
  int records = -1;
  bool in_foreground = false;  // its group takes over the terminal on the launcher's standard input
  std::optional<rlimit> descriptor_limit;
};

struct process {
  pid_t pid = -1;         // also the number of its process group
  base::unique_fd pidfd;  // readable from its death on; empty if the kernel has none (before 5.3)
};

// Why a program did not start, written by the child that was to become it.
struct exec_failure {
  pid_t pid;
  int error;
};

// The pipe by which children report a failed exec; a child that succeeds only closes its copy.
class exec_reports {
 public:
  exec_reports();
  int writer() const { return writer_.get(); }
  // Returns the reports since the last call; does not block. A child's report is there before its death is
  // seen.
  std::vector<exec_failure> collect();

 private:
  base::unique_fd reader_;
  base::unique_fd writer_;
};

// Throws std::system_error if no process can be made. Only `reports` tells whether the program started.
process spawn(const process_spec& spec, const guardian& guard, const exec_reports& reports);

// Finds the executable that `name` means: itself if it has a slash, else the first of that name in PATH.
struct program_search {
  std::string path;
  int error = 0;  // errno of the obstacle; 0: found
};
program_search find_program(const std::string& name);

}  // namespace tutti::launch
