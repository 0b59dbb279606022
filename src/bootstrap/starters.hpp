// SPDX-License-Identifier: Apache-2.0
// starters: which rank of how many this process is, as told by whatever started it: tutti-run, torchrun, Open
// MPI's mpirun, MPICH's and other Hydra ones, or srun.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

// A number and its source, for error texts.
struct setting {
  std::optional<int> value;
  std::string from;  // "RANK=3"
};

struct place {
  setting rank, size, local_rank, local_size;
  // Identifies this start of the program: the same on all its ranks, different for every other start. Empty:
  // the starter does not tell.
  std::string job;
  // The same, among the ranks of this host.
  std::string job_on_host;
  bool one_host = false;           // all ranks are known to be on this host
  bool several_hosts = false;      // they are known not to be
  bool master_port_taken = false;  // torchrun's own store listens at MASTER_PORT
  std::string
      pass_variables;  // how this starter is told to pass on variables, for error texts; empty: unknown
};

// Reads the environment in this order: RANK and WORLD_SIZE, then the variables of Open MPI, MPICH (PMI) or
// Slurm. Slurm's also reach processes that srun did not start, so they come last, and without a step they
// mean nothing. Throws invalid_argument for a malformed variable, and for starters that contradict each
// other, naming both.
place find_place();

// The first host of a Slurm list: node01 of "node[01-04,07],gpu3".
std::string first_host(std::string_view list);

// Throws invalid_argument for what the environment or the options say.
template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw error(errc::invalid_argument, fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace tutti::bootstrap
