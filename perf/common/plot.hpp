// SPDX-License-Identifier: Apache-2.0
// One benchmark as a picture: time and bandwidth by size, of every peer, as a script for gnuplot.
#pragma once

#include "common/comparison.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace perf {

// A line of the picture: what one peer took, in the place where most was measured.
struct curve {
  std::string peer;
  struct point {
    std::size_t bytes;
    double us, least_us, most_us;
  };
  std::vector<point> points;  // by size
};

// Peers in the order of launching. Peers without a launch in that place have none.
std::vector<curve> curves_of(const benchmark& of);

// Draws `file` (SVG). Empty when there are fewer than two sizes.
std::string gnuplot_script(const benchmark& of, const std::string& file);

}  // namespace perf
