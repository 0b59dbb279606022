// SPDX-License-Identifier: Apache-2.0
// A job of `tutti-run --nnodes MIN:MAX` in the simulator: its launchers and ranks agree on worlds by tutti's own code
// (coordinator, elastic_store, membership, meet_through), while nodes come, go, die and are cut off.
//
// A rank of the simulation is a node: a launcher, and processes that train. What the launchers of real nodes
// send over their connections, and ranks to the store, are messages here.
#pragma once

#include <cstdint>

namespace tutti::test {

// What schedules have come to, to be sure that they are worth something.
struct elastic_census {
  int worlds = 0;
  int steps = 0;       // of whole worlds
  int finished = 0;    // jobs that did all they were to do
  int minorities = 0;  // processes that were told that there is no quorum
  int held_back = 0;   // newcomers that had to wait for the end of those that could still run
};

// One schedule, drawn by the seed. Throws std::runtime_error, with all that is known, when an epoch has two
// worlds, a world has fewer nodes than MIN or breaks the order of ranks, a world goes on working when a later
// one has begun to, a minority goes on with --quorum majority, somebody waits for ever, or a job that nothing
// disturbs does not come to its end.
void run_elastic_job(std::uint64_t seed, elastic_census* all);

}  // namespace tutti::test
