// SPDX-License-Identifier: Apache-2.0
// How long a collective takes on a network of given latency and bandwidth, on up to 65,536 ranks.
//
// What can be simulated is: the ranks run tutti's own algorithms, message by message (tutti/sim/simulation.hpp). Beyond,
// the time is computed from the algorithm's steps, and memory extrapolated; a forecast says which of the two
// it is. The computed times are those of even ranks that begin together, with reductions for nothing.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/sim/simulation.hpp>

#include <cstddef>

namespace tutti::sim {

enum class pattern { barrier, broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all };

const char* name_of(pattern p) noexcept;

struct forecast {
  duration time{0};                // from the common begin to the end of the last
  int connections = 0;             // of the rank that has most
  std::size_t bytes_per_rank = 0;  // of tutti's memory; 0: not known
  bool simulated = false;          // otherwise computed
};

// `bytes`: of the vector that is broadcast or reduced, or of one rank's block of the others; a multiple of 4.
// `with` is one that tutti has for this (tutti/algorithm.hpp), or automatic. Ranks are on hosts of their own.
// Throws errc::invalid_argument.

// In the simulator. Time and memory grow with the square of the ranks: a second and 100 MB for 256.
forecast simulate(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n);
// From the algorithm's steps. errc::not_supported for an algorithm without a formula. Memory is not computed.
forecast compute_forecast(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n);
// Whichever it takes; beyond `most_simulated` ranks memory is extrapolated from simulations of 16 and 32.
forecast predict(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n,
                 int most_simulated = 64);

}  // namespace tutti::sim
