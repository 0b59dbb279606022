// SPDX-License-Identifier: Apache-2.0
// What a rank has done so far, in numbers.
#pragma once

#include <tutti/communicator.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct counters {
  // Messages of this rank's world, those inside of collectives included.
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t eager = 0;           // sent with the first frame
  std::uint64_t rendezvous = 0;      // announced first: longer, or without credit for more unexpected ones
  std::uint64_t fetched = 0;         // read by the receiver from the sender's memory
  std::uint64_t unexpected = 0;      // came before their receive
  std::uint64_t corrupt_frames = 0;  // damaged on the way; each has cost its connection
  // The loop.
  std::uint64_t turns = 0;
  std::uint64_t parks = 0;   // times that it slept
  std::uint64_t stalls = 0;  // times that a computation of 10 ms or more kept it from communicating
  std::chrono::nanoseconds longest_stall{0};
  // What this thread's pools have taken from the heap since it began: frames of coroutines, requests,
  // temporary memory of collectives, messages that came before their receive, handlers. In steady state they
  // take nothing.
  std::uint64_t allocations = 0;
  std::uint64_t allocated_bytes = 0;
};

// Of the rank that `c` belongs to, as of now. On its loop thread. All zero for an empty communicator.
counters counters_of(const communicator& c);

// Messages between this rank and another of its world, those inside of collectives included (but for what
// collectives of one host do in memory that they share).
struct peer_counters {
  int rank = -1;  // of the world
  std::uint64_t sends = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t receives = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t without_credit =
      0;                      // sends that were announced only because the receiver had too many unread
  std::uint64_t stalls = 0;   // times that what was to leave found no room on the way, and waited
  std::uint64_t retries = 0;  // attempts to connect that came after one that had failed
};
// Of every rank that anything went to or came from, in the order of ranks. As counters_of.
std::vector<peer_counters> peer_counters_of(const communicator& c);

// Calls of one operation, on all communicators of this rank.
struct operation_counters {
  std::string name;  // "all_reduce"
  std::uint64_t calls = 0;
  std::chrono::nanoseconds waited{0};  // from call to end, of those that were not over at once
};
// Of every operation that was called. As counters_of.
std::vector<operation_counters> operation_counters_of(const communicator& c);

// All of these in the text format of Prometheus, with a label `rank`, for an endpoint of the program's own or
// a file that a collector reads. As counters_of; empty for an empty communicator.
std::string prometheus_text(const communicator& c);

}  // namespace tutti
