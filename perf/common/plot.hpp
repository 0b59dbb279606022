// SPDX-License-Identifier: Apache-2.0
// One benchmark as a picture: time and bandwidth by size for every peer, as a gnuplot script.
#pragma once

#include "common/comparison.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace perf {

// A line of the picture: the times of one peer in the placement with most measurements.
struct curve {
  std::string peer;
  struct point {
    std::size_t bytes;
    double us, least_us, most_us;
  };
  std::vector<point> points;  // by size
};

// Peers in the order of launching, without those that have no launch in that placement.
std::vector<curve> curves_of(const benchmark& of);

// Returns a script that draws `file` (SVG), or an empty string if there are fewer than two sizes.
std::string gnuplot_script(const benchmark& of, const std::string& file);

}  // namespace perf
