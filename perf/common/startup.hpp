// SPDX-License-Identifier: Apache-2.0
// startup: the program repeatedly launches itself. Each time a launched rank reports when all ranks had left
// their first barrier. All ranks must be on one host, because the clock is the host's.
#pragma once

#include "common/options.hpp"
#include "common/report.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

// Nanoseconds of a clock that all processes of a host share.
std::int64_t host_clock_ns() noexcept;

// The report of a launched rank 0.
struct first_barrier {
  std::int64_t over_ns = 0;  // host_clock_ns() when the last rank had left it
  std::string library, transport;
};
// Rank 0: writes the report to the file that the launching program waits for.
void tell_first_barrier(const options& chosen, const first_barrier& what);
// Parses the output of tell_first_barrier. Throws std::runtime_error if it is malformed.
first_barrier first_barrier_of(const std::string& text);

// The command line of one launch: launcher, number of ranks, this program, file for the report.
std::vector<std::string> launch_line(const options& chosen, const program_names& names, std::int64_t now_ns,
                                     const std::string& program, const std::string& result_file);

// Launches repeatedly and prints the results. Returns the exit code of the program.
int measure_startup(const options& chosen, const program_names& names);

}  // namespace perf
