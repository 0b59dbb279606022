// SPDX-License-Identifier: Apache-2.0
// Where two cores are, seen from the outside: how long a cache line takes from one to the other. On a virtual
// machine that changes while a program runs, and changes everything between cores by up to five times;
// figures from different placements are never to be compared.
#pragma once

#include <string>

namespace perf {

// Nanoseconds one way between the first two cores that this process may use, the fastest of 5 x 400 round
// trips of two pinned threads; well under a millisecond on idle cores. 0 when there is one core only, or none
// gets its turn in 50 ms.
double cache_line_ns() noexcept;

// 'S': siblings of one core (about 20 ns), 'C': two cores that share the last cache (45-62 ns), 'X': they do
// not (235-255 ns), '-': unknown. The bounds lie far between what was seen; NOTES.md has the table.
char place_of(double line_ns) noexcept;
inline constexpr char unknown_place = '-';

std::string text_of_line(double line_ns);                       // "52 ns (C)"
std::string text_of_places(double before_ns, double after_ns);  // "C", "C>X"

}  // namespace perf
