// SPDX-License-Identifier: Apache-2.0
// spawn: a program that starts its own ranks, without a launcher.
#pragma once

#include <tutti/init_options.hpp>
#include <tutti/runtime.hpp>

#include <optional>
#include <utility>

namespace tutti {

namespace detail {
// Runs the job as its launcher and returns its exit code. Returns nothing in a process that is a rank.
std::optional<int> run_as_launcher(int ranks, const init_options& options) noexcept;
}  // namespace detail

// Runs main(world) in `ranks` new processes of this executable, with its arguments and environment:
// `int main() { return tutti::spawn(4, program); }`. Each new process runs the program from its beginning
// and becomes a rank when it calls spawn. The calling process becomes the launcher and does what
// `tutti-run -n 4` does. It makes a secret, prefixes output by rank, forwards signals and reports the first
// failure (its lines begin with "tutti-run:"). If it dies, by SIGKILL too, no rank survives it, and no
// process that a rank started. A process that leaves the rank's process group, as by setsid, is not ended.
//
// In a process that tutti-run, mpirun, srun or torchrun started, or with options.rank set, it is run(options,
// main). The starter's number of ranks then counts; if `ranks` differs, rank 0 prints so.
//
// Call it first in main(), once. Code before it runs in the launcher and in every rank. Open descriptors are
// inherited as by any exec, and the launcher reaps all children of its process.
//
// Returns, for main() to return, what run returns in a rank, and in the launcher the exit code of tutti-run: 0, or
// that of the first rank that failed; 128 + the number of a signal that ended that rank or the job.
// Completes: in the launcher when all ranks have ended and their output is written; in a rank as run does.
// Errors: prints a text on stderr and returns 1 if `ranks` is outside 1 to 4096, or on a second call.
// Cost: one fork and exec per rank, and one process more.
template <detail::rank_main F>
int spawn(int ranks, init_options options, F&& main) {
  if (const std::optional<int> code = detail::run_as_launcher(ranks, options)) return *code;
  return run(std::move(options), std::forward<F>(main));
}
template <detail::rank_main F>
int spawn(int ranks, F&& main) {
  return spawn(ranks, init_options(), std::forward<F>(main));
}

}  // namespace tutti
