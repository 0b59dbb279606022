// SPDX-License-Identifier: Apache-2.0
#include "common/sizes.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <stdexcept>
#include <vector>

using sizes = std::vector<std::size_t>;

TEST_CASE("a size is a number with a binary unit") {
  CHECK(perf::parse_size("0") == 0);
  CHECK(perf::parse_size("8") == 8);
  CHECK(perf::parse_size("8B") == 8);
  CHECK(perf::parse_size("1k") == 1024);
  CHECK(perf::parse_size("64KiB") == 65536);
  CHECK(perf::parse_size("2M") == 2097152);
  CHECK(perf::parse_size("1GiB") == perf::most_size_bytes);
}

TEST_CASE("lists keep their order, ranges double") {
  CHECK(perf::parse_sizes("8,1KiB,64") == sizes{8, 1024, 64});
  CHECK(perf::parse_sizes("8..64") == sizes{8, 16, 32, 64});
  CHECK(perf::parse_sizes("3..20") == sizes{3, 6, 12});
  CHECK(perf::parse_sizes("4,1K..4K,1M") == sizes{4, 1024, 2048, 4096, 1048576});
  CHECK(perf::parse_sizes("512MiB..1GiB") == sizes{std::size_t{1} << 29, std::size_t{1} << 30});
}

TEST_CASE("invalid sizes are refused") {
  for (const char* wrong : {"", ",", "8,", "x", "-1", "8KB", "8 KiB", "1.5K", "0..8", "64..8", "8..", "..8",
                            "2GiB", "99999999999999999999", "18446744073709551615K", "8...16"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(perf::parse_sizes(wrong), std::invalid_argument);
  }
}

TEST_CASE("sizes are printed in their largest whole unit") {
  CHECK(perf::text_of_size(0) == "0 B");
  CHECK(perf::text_of_size(8) == "8 B");
  CHECK(perf::text_of_size(1000) == "1000 B");
  CHECK(perf::text_of_size(1024) == "1 KiB");
  CHECK(perf::text_of_size(1025) == "1025 B");
  CHECK(perf::text_of_size(16 << 20) == "16 MiB");
}
