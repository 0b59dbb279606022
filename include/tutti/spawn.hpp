// SPDX-License-Identifier: Apache-2.0
// spawn: a program that starts its own ranks, without a launcher.
#pragma once

#include <tutti/init_options.hpp>
#include <tutti/runtime.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace tutti {

namespace detail {
// Empty in a rank. Elsewhere runs the job of so many ranks and returns its exit code.
std::optional<int> run_as_launcher(int ranks, const init_options& options) noexcept;
}  // namespace detail

// Runs main(world) in `ranks` new processes of this executable, with its arguments and environment:
// `int main() { return tutti::spawn(4, program); }`. Each new process runs the program from its beginning and
// becomes a rank when it calls spawn; the calling process becomes the launcher and does what `tutti-run -n 4`
// does: a secret, output prefixed by rank, forwarded signals, the report of the first failure (its lines
// begin with "tutti-run:"). When the calling process dies, by SIGKILL too, no rank and no process that a rank
// has started survives it.
// In a process that tutti-run, mpirun, srun or torchrun has started, or with options.rank set, it is
// run(options, main). The starter's number of ranks then counts; where `ranks` differs, rank 0 prints so.
// Completes: in the launcher when all ranks have ended and their output is written; in a rank as run does.
// Returns: in the launcher the exit code of tutti-run: 0, that of the first rank that failed, or 128 + the
// number of the signal that ended that rank or the job; in a rank that of run. main() returns it.
// Errors: a text on stderr and 1, for `ranks` outside 1 to 4096 and for a second call in one process.
// Call it first in main(), once: what stands before it runs in the launcher and in every rank, descriptors
// that are open are inherited as by any exec, and the launcher reaps all children of its process.
// Cost: one fork and exec for each rank, and one process more.
template <class F>
  requires detail::rank_main<std::decay_t<F>>
int spawn(int ranks, init_options options, F&& main) {
  if (const std::optional<int> code = detail::run_as_launcher(ranks, options)) return *code;
  return run(std::move(options), std::forward<F>(main));
}
template <class F>
  requires detail::rank_main<std::decay_t<F>>
int spawn(int ranks, F&& main) {
  return spawn(ranks, init_options(), std::forward<F>(main));
}

}  // namespace tutti
