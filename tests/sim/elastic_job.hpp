// SPDX-License-Identifier: Apache-2.0
// A job of `tutti-run --nnodes MIN:MAX` in the simulator. Its launchers and ranks agree on worlds by tutti's
// own code (coordinator, elastic_store, membership, meet_through), while nodes join, leave and fail.
//
// A rank of the simulation is a node: a launcher, and processes that train. Messages of the simulation stand
// for the connections of real launchers and for requests of ranks to the store.
#pragma once

#include <cstdint>

namespace tutti::test {

// Counts of outcomes, which show that the schedules cover the interesting cases.
struct elastic_census {
  int worlds = 0;
  int steps = 0;       // of whole worlds
  int finished = 0;    // jobs that completed all their steps
  int minorities = 0;  // processes that got the error for a missing quorum
  int held_back = 0;   // newcomers that waited for the end of processes that might still run
};

// Runs one schedule, drawn by the seed. Throws std::runtime_error with all details in these cases: an epoch
// has two worlds; a world has fewer than MIN nodes or a wrong order of ranks; a world works on after a later
// one has begun; a minority continues despite --quorum majority; a process waits for ever; an undisturbed job
// does not finish.
void run_elastic_job(std::uint64_t seed, elastic_census* all);

}  // namespace tutti::test
