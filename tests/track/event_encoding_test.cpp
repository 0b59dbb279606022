// SPDX-License-Identifier: Apache-2.0
#include "track/event_encoding.hpp"

#include "track/event_reader.hpp"

#include <doctest/doctest.h>
#include <cmath>
#include <limits>
#include <vector>

using namespace tutti::track;
using tutti::test::read_event;
using tutti::test::read_events;

TEST_CASE("event encoding: every kind survives the round trip") {
  std::string file;
  put_version(file, 1.5);
  put_scalar(file, {"loss/rank_2", 7, 2.5}, 0.25);
  put_scalar(file, {"odd", -3, 2.5}, std::numeric_limits<double>::infinity());
  put_text(file, {"remark", 8, 3}, "caf\xc3\xa9");
  const std::vector<double> values{1, 2, 2, 4, NAN};
  put_histogram(file, {"weights", 9, 4}, histogram_of(values, 3));
  const std::vector<std::uint8_t> pixels{0, 128, 255, 64, 1, 2};
  put_image(file, {"picture", 10, 5}, 3, 2, 1, png_of(3, 2, 1, pixels));
  tutti::track::hyperparameter_map parameters;
  parameters.insert_or_assign("rate", 0.5);
  parameters.insert_or_assign("layers", 3);
  parameters.insert_or_assign("name", "net");
  parameters.insert_or_assign("nesterov", true);
  put_hyperparameters(file, 6, parameters);

  const auto read = read_events(file);
  CHECK_FALSE(read.cut);
  REQUIRE(read.events.size() == 7);
  const std::vector<read_event>& e = read.events;
  CHECK(e[0].wall_time == 1.5);
  CHECK((e[1].kind == "scalar" && e[1].tag == "loss/rank_2" && e[1].step == 7 && e[1].number == 0.25F &&
         e[1].wall_time == 2.5));
  CHECK((e[2].step == -3 && std::isinf(e[2].number)));
  CHECK((e[3].kind == "text" && e[3].content == "caf\xc3\xa9"));
  CHECK((e[4].kind == "histogram" && e[4].histogram.count == 4 && e[4].histogram.min == 1 &&
         e[4].histogram.max == 4));
  CHECK(e[4].histogram.limits == std::vector<double>{2, 3, 4});
  CHECK(e[4].histogram.counts == std::vector<double>{3, 0, 1});
  CHECK((e[5].kind == "image" && e[5].width == 3 && e[5].height == 2 && e[5].channels == 1));
  CHECK(e[5].content.substr(1, 3) == "PNG");
  CHECK((e[6].kind == "hyperparameters" && e[6].content.find("nesterov") != std::string::npos));
}

TEST_CASE("event encoding: known bytes") {
  // As TensorFlow writes the first record of a file, at time 0.
  std::string file;
  put_version(file, 0);
  CHECK(file.substr(0, 8) == std::string("\x18\0\0\0\0\0\0\0", 8));
  CHECK(file.substr(8, 4) == std::string("\xa3\x7f\x4b\x22", 4));
  CHECK(file.substr(12, 9) == std::string("\x09\0\0\0\0\0\0\0\0", 9));
  CHECK(file.substr(21, 15) ==
        "\x1a\x0d"
        "brain.Event:2");
}

TEST_CASE("event encoding: a file that follows others, and a restart of a tag") {
  std::string file;
  put_version(file, 1, true);
  put_restart(file, {"loss", 30, 2});
  put_scalar(file, {"loss", 30, 2}, 0.5);
  put_restart(file, {"last", std::numeric_limits<std::int64_t>::max(), 3});
  const auto read = read_events(file);
  REQUIRE(read.events.size() == 4);
  CHECK(read.events[0].content == "brain.Event:1");
  CHECK((read.events[1].kind == "restart" && read.events[1].step == 31 && read.events[1].wall_time == 2));
  CHECK((read.events[2].kind == "scalar" && read.events[2].step == 30));
  CHECK(read.events[3].step == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("event encoding: the reader of the tests refuses invalid data and detects truncation") {
  std::string file;
  put_version(file, 1);
  const std::size_t first = file.size();
  put_scalar(file, {"loss", 1, 1}, 1);
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string broken = file;
    broken[at] = static_cast<char>(broken[at] ^ 4);
    CHECK_THROWS(read_events(broken));
  }
  for (std::size_t size = first + 1; size < file.size(); ++size) {
    const auto read = read_events(std::string_view(file).substr(0, size));
    CHECK(read.cut);
    CHECK(read.events.size() == 1);
  }
}
