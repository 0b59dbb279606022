// SPDX-License-Identifier: Apache-2.0
// What a rank has done so far, in numbers.
#pragma once

#include <tutti/communicator.hpp>

#include <chrono>
#include <cstdint>

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
};

// Of the rank that `c` belongs to, as of now. On its loop thread. All zero for an empty communicator.
counters counters_of(const communicator& c);

}  // namespace tutti
