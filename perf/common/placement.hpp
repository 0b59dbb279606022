// SPDX-License-Identifier: Apache-2.0
// The distance of two cores, measured from outside: the time of a cache line from one to the other. On a
// virtual machine it changes while a program runs, and changes communication between cores by up to five
// times. Figures from different placements must not be compared.
#pragma once

#include <string>

namespace perf {

// Nanoseconds one way between the first two cores that this process may use: the fastest of 5 x 400 round
// trips of two pinned threads. Takes well under a millisecond on idle cores. 0 if there is only one core, or
// a thread does not get its core within 50 ms.
double cache_line_ns() noexcept;

// 'S': siblings of one core (about 20 ns); 'C': two cores with a common last-level cache (45-62 ns); 'X':
// without one (235-255 ns); '-': unknown. NOTES.md has the measured values.
char place_of(double line_ns) noexcept;
inline constexpr char unknown_place = '-';

std::string text_of_line(double line_ns);                       // "52 ns (C)"
std::string text_of_places(double before_ns, double after_ns);  // "C", "C>X"

}  // namespace perf
