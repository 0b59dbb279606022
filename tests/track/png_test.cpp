// SPDX-License-Identifier: Apache-2.0
#include "track/event_encoding.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

using tutti::track::png_of;

TEST_CASE("png: one black pixel, byte by byte") {
  const std::vector<std::uint8_t> black{0};
  const std::string expected(
      "\x89PNG\r\n\x1a\n"
      "\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0\x3a\x7e\x9b\x55"
      "\0\0\0\x0dIDAT\x78\x01\x01\x02\0\xfd\xff\0\0\0\x02\0\x01",
      8 + 25 + 8 + 13);
  const std::string png = png_of(1, 1, 1, black);
  CHECK(png.substr(0, expected.size()) == expected);
  CHECK(png.substr(png.size() - 12) == std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));
}

TEST_CASE("png: more than one stored block; invalid shapes") {
  const std::vector<std::uint8_t> pixels(300 * 300 * 3, 7);
  CHECK(png_of(300, 300, 3, pixels).size() > pixels.size());
  CHECK(png_of(300, 300, 4, pixels).empty());
  CHECK(png_of(0, 0, 1, {}).empty());
  CHECK(png_of(1, 1, 2, {}).empty());
}
