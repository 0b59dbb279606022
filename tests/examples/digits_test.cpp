// SPDX-License-Identifier: Apache-2.0
// The shipped digits, and invalid tables.
#include "examples/scratch_files.hpp"

#include "train_digits/digits.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

using train_digits::read_digits_csv;
using tutti::test::scratch_directory;

namespace {

std::string line_of(const std::string& pixel, const std::string& label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += pixel + ",";
  return line + label + "\n";
}

}  // namespace

TEST_CASE("digits: the shipped file") {
  const auto digits = read_digits_csv(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz");
  CHECK(digits.size() == 1797);
  CHECK(digits.pixels.size() == 1797 * 64);
  CHECK(digits.rows == 8);
  CHECK(digits.columns == 8);
  CHECK(digits.darkest == 16);
  CHECK(*std::ranges::max_element(digits.pixels) == 16);
  std::array<int, 10> counts{};
  for (const auto label : digits.labels) ++counts.at(label);
  CHECK(counts == std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});  // as listed by UCI
  // The first image is a zero: white in its middle, dark around it.
  CHECK(digits.labels[0] == 0);
  CHECK(digits.pixels[2] == 5);
  CHECK(digits.pixels[3 * 8 + 3] == 0);
}

TEST_CASE("digits: all line endings are accepted") {
  const scratch_directory scratch;
  const std::string line = line_of("16", "9");
  const std::string bare = line.substr(0, line.size() - 1);
  CHECK(read_digits_csv(scratch.write("a", line + bare)).size() == 2);
  CHECK(read_digits_csv(scratch.write("b", bare + "\r\n" + bare + "\r\n")).size() == 2);
  CHECK(read_digits_csv(write_gz(scratch, "c", line)).labels[0] == 9);
}

TEST_CASE("digits: errors name the cause and its place") {
  const scratch_directory scratch;
  const auto error_of = [&](const std::string& content) {
    return tutti::test::error_of([&] { read_digits_csv(scratch.write("table", content)); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string good = line_of("0", "1");
  contains(error_of(""), "is empty");
  contains(error_of(good + line_of("17", "1")), "line 2, field 1: \"17\" is not an integer from 0 to 16");
  contains(error_of(good + line_of("-1", "1")), "\"-1\" is not an integer");
  contains(error_of(line_of("0", "10")), "line 1, field 65: \"10\" is not an integer from 0 to 9");
  contains(error_of(line_of("0", "")), "line 1, field 65");
  contains(error_of(line_of("1.5", "1")), "\"1.5\"");
  contains(error_of(line_of("99999999999", "1")), "\"99999999999\"");
  contains(error_of(good + "\n" + good), "line 2 does not have the 65 fields");
  contains(error_of(good + "0,0,1\n"), "line 2 does not have the 65 fields");
  contains(error_of("0," + good), "line 1 does not have the 65 fields");
}
