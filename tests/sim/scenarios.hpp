// SPDX-License-Identifier: Apache-2.0
// Programs of ranks in simulations, whose every outcome can be checked, whatever fails.
#pragma once

#include "coll/random/program.hpp"

#include <cstdint>
#include <string>
#include <tutti/sim/simulation.hpp>
#include <vector>

namespace tutti::test {

// Messages between all ranks, received by source and tag, by either or by neither. Sends and receives are
// cancelled after random times. Throws std::runtime_error if a message arrives twice, changed, or before an
// earlier one of its sender and tag, and at the end if a successfully sent one is missing.
struct mail {
  std::uint64_t seed = 0;
  int letters = 20;  // of each rank
};
task<> exchange_letters(communicator world, mail plan);

// Sums, each checked, with messages around the ring in between.
task<> sum_up(communicator world, std::uint64_t seed, int rounds);

// A small world that varies with the seed; without faults.
sim::options small_world(std::uint64_t seed);
// A program of random_program for this world.
program program_for(const sim::options& o, std::size_t steps, std::size_t most_bytes);

// Runs one schedule, drawn by the seed: a world, a program, and in every other schedule faults. Throws
// std::runtime_error with all details unless it ended correctly: no rank waited for ever or until a timeout,
// no result was wrong, and without faults all ranks returned.
void run_schedule(std::uint64_t seed);
void judge(const sim::options& o, const sim::report& r, const std::string& what);

}  // namespace tutti::test
