// SPDX-License-Identifier: Apache-2.0
// A simulator: many ranks of a program in one thread, under virtual time, over a network that is made up.
//
// The ranks run the program's own coroutines and tutti's own engine, matching, protocols, communicators and
// collectives; only time, randomness and the transport are replaced. The same options give the same run, to
// the last event, so what fails once fails again.
//
// Virtual: sleep_for, now, with_timeout, communicators' timeouts. Computation takes no time, and
// tutti::compute runs at once. Asio's timers and sockets stay real: a rank that waits for one holds up the
// simulation, and the run can no longer be repeated. Shared memory is not simulated: ranks of one host
// exchange messages.
#pragma once

#include <tutti/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <tutti/error.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::sim {

using duration = std::chrono::nanoseconds;
inline constexpr duration never = duration::max();

// What communication costs, in the terms of LogGP, and how the transport behaves.
struct network {
  duration latency{5'000};
  duration overhead{500};            // of a processor, for each frame that it sends or receives
  duration gap{0};                   // at least, between two frames through one rank's port
  double bytes_per_second = 12.5e9;  // of each port, in each direction; 0: without limit
  // Between ranks of one host (options::ranks_per_host), which do not use their ports for it.
  duration local_latency{500};
  double local_bytes_per_second = 20e9;

  duration connecting{50'000};      // from the first frame to an open connection
  duration silence{3'000'000'000};  // a connection over which nothing can go for this long is given up
  std::size_t eager_limit = 65'536;
  std::size_t slice = 262'144;  // longer data leave in slices, between which other frames may pass
  std::size_t header_bytes = 64;
};

// What varies from seed to seed although nothing fails. Frames between the same two ranks never overtake each
// other.
struct noise {
  duration start{0};      // ranks begin up to this much apart
  duration jitter{0};     // a frame takes up to this much longer
  double stragglers = 0;  // share of frames that take `straggling` longer
  duration straggling{0};
  double split = 0;  // share of frames whose payload comes in two parts, with time between
  double busy = 0;   // share of frames that wait although the port is free
  double unstoppable =
      0;                 // share of frames that go their way although they were taken back while they waited
  bool shuffle = false;  // what happens at the same time happens in an order that the seed draws
};
// All of it, in a measure that the seed draws.
noise random_noise(std::uint64_t seed);

struct death {  // at a time, or in the middle of whatever makes the rank send its frame number `frames`
  int rank = 0;
  duration at = never;
  std::uint64_t frames = 0;  // 0: at the time
};
struct disconnection {  // of two ranks, where a connection stands; `loses`: what was under way is lost
  int a = 0;
  int b = 0;
  duration at{0};
  bool loses = false;
};
struct partition {  // these ranks and the others do not reach each other
  std::vector<int> ranks;
  duration from{0};
  duration until = never;
};
struct stall {  // the rank does nothing, and is not dead
  int rank = 0;
  duration from{0};
  duration until{0};
};
using standstill [[deprecated("write stall")]] = stall;
struct skew {  // of a rank's clock
  int rank = 0;
  duration ahead{0};
  double drift_ppm = 0;
};
// Of frame number `frame` (from 1) from one rank to another: noticed, and ends their connection.
struct corruption {
  int from = 0;
  int to = 0;
  std::uint64_t frame = 1;
};

struct faults {
  std::vector<death> deaths;
  std::vector<disconnection> disconnections;
  std::vector<partition> partitions;
  std::vector<stall> stalls;
  std::vector<skew> skews;
  std::vector<corruption> corruptions;

  // One or more of them, mostly deaths; at least one rank stays alive. `within`: when they happen.
  static faults random(std::uint64_t seed, int ranks, duration within);
  bool none() const noexcept;
  std::string text() const;
  [[deprecated("write text()")]] std::string words() const { return text(); }
};

struct options {
  options();  // the seed is TUTTI_SIM_SEED, or 1

  int ranks = 2;
  int ranks_per_host = 1;
  std::uint64_t seed;
  std::chrono::milliseconds timeout{60'000};  // of operations, as init_options::timeout
  sim::network network;
  sim::noise noise;
  sim::faults faults;
  duration limit = std::chrono::hours(24);  // of virtual time; ranks that are at work then count as stuck
  // How long, in real time, to wait for Asio when nothing else can happen. A timeout that is to come can: the
  // simulation goes on to it while another rank waits for a timer of Asio's. tutti::sleep_for is virtual.
  std::chrono::milliseconds patience{10'000};
};

enum class ending {
  returned,
  threw,
  killed,
  stuck  // waits, and nothing can happen any more
};

struct rank_report {
  ending how = ending::stuck;
  int code = 0;                 // what main returned
  std::exception_ptr failure;   // what it threw
  errc reason = errc::success;  // of a tutti::error
  std::string text;             // of its exception; of a stuck rank, what it waits for
  duration ended{0};            // main has ended and the world has been left
  std::uint64_t frames = 0;     // sent
  std::uint64_t bytes = 0;      // of payload, sent
  int connections = 0;
};

struct report {
  std::uint64_t seed = 0;
  duration time{0};          // virtual, when the last rank had ended
  std::uint64_t frames = 0;  // sent by all: messages and what protocols add
  std::uint64_t bytes = 0;   // their payload
  std::uint64_t events = 0;
  std::uint64_t hash = 0;  // of all events in their order, times and contents included
  std::size_t bytes_per_rank =
      0;                   // of memory, the program's own included, when the first rank ended; 0: not known
  bool repeatable = true;  // no rank has waited for real time
  std::vector<rank_report> ranks;

  bool stuck() const noexcept;  // a rank is
  bool all_returned() const noexcept;
  std::string text() const;  // line by line, for people
  [[deprecated("write text()")]] std::string words() const { return text(); }
};

namespace detail {
report run(const options& o, tutti::detail::any_main main);
}

// Runs main(world), a coroutine of one communicator as tutti::run_local takes it, on every rank. Returns when
// all ranks have ended or died, or nothing can happen any more; then timeouts have passed, however long they
// are in virtual time. The frames of killed and stuck ranks are destroyed at the end. On a thread that runs
// no tutti::runtime and no other simulation. Throws errc::invalid_argument, naming the option, and what
// starting the ranks throws.
template <class F>
  requires tutti::detail::rank_main<std::decay_t<F>>
report run(const options& o, F&& main) {
  return detail::run(o, tutti::detail::erase_main(main));
}

// scenario(seed) for `count` seeds from `first` on. When one throws: says on stderr which seed, and how to
// run it again, and throws it on. With TUTTI_SIM_SEED set, for that seed only.
void explore(std::uint64_t first, std::uint64_t count, const std::function<void(std::uint64_t)>& scenario);

}  // namespace tutti::sim
