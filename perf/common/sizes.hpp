// SPDX-License-Identifier: Apache-2.0
// Sizes as text: "8,1KiB,64KiB", "8..16MiB".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

inline constexpr std::size_t most_size_bytes = std::size_t{1} << 30;

// A number of bytes, with K, M or G (also KiB, MiB, GiB: powers of 1024). Throws std::invalid_argument.
std::size_t parse_size(std::string_view word);

// A comma-separated list in the given order; "a..b" stands for a, 2a, 4a ... up to b. Throws
// std::invalid_argument.
std::vector<std::size_t> parse_sizes(std::string_view list);

// "8 B", "64 KiB", "1 MiB". Sizes that are not whole numbers of a larger unit stay in bytes.
std::string text_of_size(std::size_t bytes);

}  // namespace perf
