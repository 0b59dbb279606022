// SPDX-License-Identifier: Apache-2.0
// Forecasts how long a collective takes on a network of given latency and bandwidth, on up to 65,536 ranks.
//
// Small cases are simulated: the ranks run tutti's own algorithms, message by message
// (tutti/sim/simulation.hpp). For larger ones the time is computed from the algorithm's steps, and memory is
// extrapolated. A forecast says which of the two it is. Computed times assume that all ranks are equal and
// start together, and that reductions cost nothing.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/sim/simulation.hpp>

#include <cstddef>

namespace tutti::sim {

// The collectives that can be forecast.
enum class pattern { barrier, broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all };

const char* name_of(pattern p) noexcept;

// The forecast of one collective.
struct forecast {
  // From the common start to the end of the last rank.
  duration time{0};
  // Connections of the rank that has most.
  int connections = 0;
  // tutti's memory per rank; 0: not known.
  std::size_t bytes_per_rank = 0;
  // Whether the forecast was simulated; otherwise it was computed.
  bool simulated = false;
};

// ---- forecasts ----
//
// The functions share these parameters. `bytes` is the size of the vector that is broadcast or reduced,
// or of one rank's block in the others; a multiple of 4. `with` is an algorithm that tutti has for this
// collective (tutti/algorithm.hpp), or automatic. Each rank is on a host of its own.
// Errors: throw errc::invalid_argument.

// Forecasts by the simulator.
// Cost: time and memory grow with the square of the ranks: a second and 100 MB for 256.
forecast simulate(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n);
// Forecasts from the algorithm's steps. Memory is not computed.
// Errors: also errc::not_supported for an algorithm without a formula.
forecast compute_forecast(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n);
// Simulates up to `most_simulated` ranks and computes beyond, with memory extrapolated from 16 and 32 ranks.
forecast predict(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n,
                 int most_simulated = 64);

}  // namespace tutti::sim
