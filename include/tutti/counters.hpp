// SPDX-License-Identifier: Apache-2.0
// Counters: how much a rank has communicated so far.
#pragma once

#include <tutti/communicator.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// The counters of one rank; see counters_of().
struct counters {
  // Messages of this rank's world, including those inside collectives.
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  // Sent in the first frame.
  std::uint64_t eager = 0;
  // Sent by rendezvous: long messages, and those without credit for more unexpected ones.
  std::uint64_t rendezvous = 0;
  // Read by the receiver from the sender's memory.
  std::uint64_t fetched = 0;
  // Arrived before their receive.
  std::uint64_t unexpected = 0;
  // Frames damaged in transit; each ended its connection.
  std::uint64_t corrupt_frames = 0;
  // Turns of the loop.
  std::uint64_t turns = 0;
  // Times the loop slept.
  std::uint64_t parks = 0;
  // Times a computation of 10 ms or more kept the loop from communicating.
  std::uint64_t stalls = 0;
  std::chrono::nanoseconds longest_stall{0};
  // What this thread's pools have taken from the heap since the thread began; in steady state nothing. The
  // pools hold coroutine frames, requests, temporary memory of collectives, unexpected messages and handlers.
  std::uint64_t allocations = 0;
  std::uint64_t allocated_bytes = 0;
};

// Returns the counters of the rank of `c`; all zero for an empty communicator. Call it on the loop thread.
counters counters_of(const communicator& c);

// Messages between this rank and another rank of its world, including those inside collectives. Collectives
// of one host that use shared memory are not counted.
struct peer_counters {
  // Rank in the world.
  int rank = -1;
  std::uint64_t sends = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t receives = 0;
  std::uint64_t bytes_received = 0;
  // Sends by rendezvous only because the receiver had too many unread messages.
  std::uint64_t without_credit = 0;
  // Times data had to wait for room to leave.
  std::uint64_t stalls = 0;
  // Connection attempts after a failed one.
  std::uint64_t retries = 0;
  // The transport between them: "self", "shm", "tcp", "ucx" or "mpi".
  std::string transport;
};
// Returns the counters of every rank that this rank has communicated with, in rank order. As counters_of.
std::vector<peer_counters> peer_counters_of(const communicator& c);

// Calls of one operation on all communicators of this rank.
struct operation_counters {
  // The operation, such as "all_reduce".
  std::string name;
  std::uint64_t calls = 0;
  // Time from call to completion, without calls that completed at once.
  std::chrono::nanoseconds waited{0};
};
// Returns the counters of every operation that was called. As counters_of.
std::vector<operation_counters> operation_counters_of(const communicator& c);

// Returns all of these counters in the text format of Prometheus, with a label `rank`. For an HTTP endpoint
// of the program, or a file that a collector reads. As counters_of; empty for an empty communicator.
std::string prometheus_text(const communicator& c);

}  // namespace tutti
