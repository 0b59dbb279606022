// SPDX-License-Identifier: Apache-2.0
// Comparisons as Markdown and as JSON.
#pragma once

#include "common/comparison.hpp"

#include <string>
#include <vector>

namespace perf {

// "tutti: tutti 0.1.0 (shm, loop io_uring, 6 launches); openmpi: Open MPI v4.1.4 (shm, 3 launches)"
std::string text_of_peers(const benchmark& of);
// Heading, description and table of one benchmark.
std::string markdown_of(const benchmark& of);
// A line for each case: by size, the ratio to the fastest rival, and its name.
std::string markdown_of_ratios(const std::vector<benchmark>& all);
// All measured targets, and whether each was met.
std::string markdown_of_targets(const std::vector<benchmark>& all);
// All rows of all benchmarks, a line for each benchmark, with four digits a number. `method` tells the reader how they were measured.
std::string json_of(const std::vector<benchmark>& all, const std::string& method);

}  // namespace perf
