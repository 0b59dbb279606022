// SPDX-License-Identifier: Apache-2.0
// The simulator: runs many ranks of a program in one thread, under virtual time, over a simulated network.
//
// The ranks run the program's coroutines and tutti's own engine, matching, protocols and collectives: only time,
// randomness and the transport are replaced. The same options give the same run to the last event.
//
// Virtual are sleep_for, now, with_timeout and the timeouts of communicators. Computation takes no time, and
// tutti::compute runs at once. Asio's timers and sockets stay real: a rank that waits for one holds up the
// simulation, which can then not be repeated. Ranks of one host exchange messages, too.
#pragma once

#include <tutti/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::sim {

using duration = std::chrono::nanoseconds;
// A time that never comes.
inline constexpr duration never = duration::max();

// The cost of communication, in the terms of LogGP, and the behaviour of the transport.
struct network {
  duration latency{5'000};
  // Processor time for each frame sent or received.
  duration overhead{500};
  // Smallest time between two frames through one rank's port.
  duration gap{0};
  // Bandwidth of each port, in each direction, 1 or more; 0: unlimited.
  double bytes_per_second = 12.5e9;
  // Between ranks of one host (options::ranks_per_host); they do not use their ports.
  duration local_latency{500};
  double local_bytes_per_second = 20e9;

  // From the first frame to an open connection.
  duration connecting{50'000};
  // A connection that is blocked for this long is given up.
  duration silence{3'000'000'000};
  std::size_t eager_limit = 65'536;
  // Longer data leave in slices, between which other frames may pass.
  std::size_t slice = 262'144;
  std::size_t header_bytes = 64;
};

// Variation from seed to seed without any failure. Frames between the same two ranks keep their order.
struct noise {
  // Ranks start up to this far apart.
  duration start{0};
  // A frame takes up to this much longer.
  duration jitter{0};
  // Share of frames that take `straggling` longer.
  double stragglers = 0;
  duration straggling{0};
  // Share of frames whose payload arrives in two parts.
  double split = 0;
  // Share of frames that wait although the port is free.
  double busy = 0;
  // Share of frames that are sent although they were taken back while they waited.
  double unstoppable = 0;
  // Events of the same time happen in an order drawn from the seed.
  bool shuffle = false;
};
// All kinds of noise, in amounts drawn from the seed.
noise random_noise(std::uint64_t seed);

// The death of a rank: at a time, or while it sends its frame number `frames`. Of several the first to come counts.
struct death {
  int rank = 0;
  duration at = never;
  // 0: the rank dies at time `at`.
  std::uint64_t frames = 0;
};
// The end of a connection between two ranks, if there is one; `loses`: data in flight are lost.
struct disconnection {
  int a = 0;
  int b = 0;
  duration at{0};
  bool loses = false;
};
// A network partition: these ranks and the others do not reach each other.
struct partition {
  std::vector<int> ranks;
  duration from{0};
  duration until = never;
};
// A time in which the rank does nothing, although it is not dead.
struct stall {
  int rank = 0;
  duration from{0};
  duration until{0};
};
// The error of a rank's clock. Several of one rank add up: to at most 180 days and 500,000 ppm, either way.
struct skew {
  int rank = 0;
  duration ahead{0};
  double drift_ppm = 0;
};
// Damage to frame number `frame` (from 1) between two ranks. It is noticed and ends their connection.
struct corruption {
  int from = 0;
  int to = 0;
  std::uint64_t frame = 1;
};

// The faults of one run.
struct faults {
  std::vector<death> deaths;
  std::vector<disconnection> disconnections;
  std::vector<partition> partitions;
  std::vector<stall> stalls;
  std::vector<skew> skews;
  std::vector<corruption> corruptions;

  // Draws one or more faults, mostly deaths, that happen before time `within`. At least one rank stays alive.
  static faults random(std::uint64_t seed, int ranks, duration within);
  // Whether there are no faults.
  bool none() const noexcept;
  std::string text() const;
};

// Everything that determines a run.
struct options {
  // The seed is TUTTI_SIM_SEED, or 1.
  options();

  int ranks = 2;
  int ranks_per_host = 1;
  std::uint64_t seed;
  // Timeout of operations, as init_options::timeout.
  std::chrono::milliseconds timeout{60'000};
  sim::network network;
  sim::noise noise;
  sim::faults faults;
  // Limit of virtual time; ranks that still run then count as stuck.
  duration limit = std::chrono::hours(24);
  // Real time to wait for Asio when no other event is left. Virtual timeouts are events: the simulation
  // advances to them while another rank waits for an Asio timer. tutti::sleep_for is virtual.
  std::chrono::milliseconds patience{10'000};
};

// How a rank ended.
enum class ending {
  returned,
  threw,
  killed,
  // Waits, and no event is left that could resume it.
  stuck
};

// The outcome of one rank.
struct rank_report {
  ending how = ending::stuck;
  // What main returned.
  int code = 0;
  // What main threw.
  std::exception_ptr failure;
  // Code of a tutti::error.
  errc reason = errc::success;
  // Text of the exception; for a stuck rank, what it waits for.
  std::string text;
  // When main had ended and the rank had left the world.
  duration ended{0};
  // Frames sent.
  std::uint64_t frames = 0;
  // Bytes of payload sent.
  std::uint64_t bytes = 0;
  int connections = 0;
};

// The outcome of a run.
struct report {
  std::uint64_t seed = 0;
  // Virtual time when the last rank had ended.
  duration time{0};
  // Frames sent by all ranks: messages and protocol.
  std::uint64_t frames = 0;
  // Bytes of their payload.
  std::uint64_t bytes = 0;
  std::uint64_t events = 0;
  // Hash of all events in order, with times and contents.
  std::uint64_t hash = 0;
  // Memory when the first rank ended, including the program's own; 0: not known.
  std::size_t bytes_per_rank = 0;
  // No rank has waited for real time.
  bool repeatable = true;
  std::vector<rank_report> ranks;

  // Whether a rank is stuck.
  bool stuck() const noexcept;
  // Whether main returned on every rank.
  bool all_returned() const noexcept;
  // A text for people, line by line.
  std::string text() const;
};

namespace detail {
report run(const options& o, tutti::detail::any_main main);
}

// Runs main(world), which is as for tutti::run_local, on every rank. Call it on a thread that runs no
// tutti::runtime and no other simulation. The frames of killed and stuck ranks are destroyed at the end.
// Completes: returns when all ranks have ended or died, or no event, and so no timeout, is left.
// Errors: throws errc::invalid_argument, naming the option, and any error of starting the ranks.
template <tutti::detail::rank_main F>
report run(const options& o, F&& main) {
  return detail::run(o, tutti::detail::erase_main(main));
}

// Calls scenario(seed) for `count` seeds from `first` on. If one throws, prints the seed and how to repeat it
// on stderr, and rethrows. With TUTTI_SIM_SEED set, calls it for that seed only.
// Errors: throws errc::invalid_argument if a seed is above 2^63 - 1.
void explore(std::uint64_t first, std::uint64_t count, const std::function<void(std::uint64_t)>& scenario);

}  // namespace tutti::sim
