// SPDX-License-Identifier: Apache-2.0
// join: two jobs in one world, such as trainers and the servers that take their weights.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/init_options.hpp>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

#include <string>

namespace tutti {

// The ranks of one job in `joined::all`: first to first + size - 1, in their order.
struct joined_ranks {
  int first = 0;
  int size = 0;
};

struct joined {
  communicator all;    // of both jobs
  joined_ranks here;   // this job
  joined_ranks there;  // the other one
};

// Joins the ranks of `world` with those of another job, whose ranks call it with the same name. Called by all ranks
// of `world`, in the same order as its collectives; each passes the same store, which both jobs use, such as a
// tcp_store that one of them serves. The job that comes to the store first has the lower ranks. The jobs' own
// communicators stay as they are. A name joins two jobs once, also if that failed; keys of the store begin with it.
// Both jobs name the same secret in `options`. Where neither does, they agree on one through the store: who reads the
// store can join. `rank` and `world_size` of the options have no effect.
// The store outlives the task. Completes: when all ranks of both jobs have joined. Errors: errc::timed_out (the other
// job did not come within the store's timeout), errc::invalid_argument (two jobs have used the name),
// errc::join_failed (the other job has given up: both need another name), errc::unauthorized (the jobs name different
// secrets), and those of init() with a store. An error of rank 0 at the store is errc::join_failed on the other
// ranks, with its text. When a rank of either job dies after the jobs have met, or cannot go on, its job learns that
// as of a collective, and the other job by the store: errc::join_failed. Cancellation: before the jobs have met it
// fails `world`, as a stopped collective does; then as of init(). Cost: a duplicate of `world`, and a receive between
// rank 0 and each other rank, until all have joined.
task<joined> join(communicator world, std::string name, store& through, init_options options = {});

}  // namespace tutti
