// SPDX-License-Identifier: Apache-2.0
// Explains who waits for whom: converts the ranks' recordings to a table for people.
#pragma once

#include "flight/snapshot.hpp"

#include <string>
#include <vector>

namespace tutti::flight {

// Returns lines of text. They say what each rank does or waits for and since when, and which ranks have not
// called which collective. They name the ranks that the others wait for, and circles of waiting ranks.
// `ranks` may be part of a world.
std::string explain(const std::vector<rank_snapshot>& ranks);

const char* name_of_kind(std::uint8_t kind) noexcept;

// The last operations of a failed rank, the newest first, as lines with `indent` before each; empty if it had
// none.
std::string last_operations(const rank_snapshot& rank, std::size_t most, const std::string& indent);

// What each of them waits for, as "recv from rank 0, tag 7 on world, at train.cpp:81; barrier #2 on world".
std::vector<std::string> pending_operations(const std::vector<rank_snapshot>& ranks);

std::string seconds_text(std::int64_t ns);    // "350 ms", "12.1 s"
std::string bytes_text(std::uint64_t bytes);  // "64 bytes", "1.5 MiB"

}  // namespace tutti::flight
