// SPDX-License-Identifier: Apache-2.0
// startup: the program starts itself through a launcher, again and again, and each time one of those ranks
// says when all of them had left their first barrier. The clock is the host's, so the ranks have to be on
// one.
#pragma once

#include "common/options.hpp"
#include "common/report.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

// Nanoseconds of the clock that all processes of a host share.
std::int64_t host_clock_ns() noexcept;

// What a launched rank 0 has to say.
struct first_barrier {
  std::int64_t over_ns = 0;  // host_clock_ns() when the last rank had left it
  std::string library, transport;
};
// To the file that the launching program waits for; for rank 0.
void tell_first_barrier(const options& chosen, const first_barrier& what);
// Of what tell_first_barrier has written. Throws std::runtime_error when it is none.
first_barrier first_barrier_of(const std::string& text);

// The words of one launch: launcher, number of ranks, this program, its answer.
std::vector<std::string> launch_line(const options& chosen, const program_names& names, std::int64_t now_ns,
                                     const std::string& program, const std::string& result_file);

// Launches and prints; the exit code of the program.
int measure_startup(const options& chosen, const program_names& names);

}  // namespace perf
