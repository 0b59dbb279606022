// SPDX-License-Identifier: Apache-2.0
// What ranks do in simulations: programs of which every outcome can be judged, whatever fails.
#pragma once

#include "coll/random/program.hpp"

#include <cstdint>
#include <string>
#include <tutti/sim/simulation.hpp>
#include <vector>

namespace tutti::test {

// Letters between all ranks, received by source and tag, by either or by neither; sends and receives are
// given up after times that chance draws. Throws std::runtime_error when a letter comes twice, changed or
// before an earlier one of its sender and tag, and at the end when one is missing of which the send has
// succeeded.
struct mail {
  std::uint64_t seed = 0;
  int letters = 20;  // of each rank
};
task<> exchange_letters(communicator world, mail plan);

// Sums, each checked, with messages round the ring in between.
task<> sum_up(communicator world, std::uint64_t seed, int rounds);

// A small world that varies with the seed; without faults.
sim::options small_world(std::uint64_t seed);
// The program of random_program for it.
program program_for(const sim::options& o, std::size_t steps, std::size_t most_bytes);

// One schedule, what it is being drawn by the seed: a world, a program, and, in every other, faults. Throws
// std::runtime_error, with all that is known, unless it ended as it must: nobody waits for ever or until a
// timeout, nobody has seen a wrong result, and without faults everybody has returned.
void run_schedule(std::uint64_t seed);
void judge(const sim::options& o, const sim::report& r, const std::string& what);

}  // namespace tutti::test
