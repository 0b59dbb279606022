// SPDX-License-Identifier: Apache-2.0
#include "track/json_text.hpp"

#include <doctest/doctest.h>
#include <cmath>
#include <limits>

using namespace tutti::track;

TEST_CASE("json: objects and arrays") {
  CHECK(json_object().text() == "{}");
  CHECK(json_array({}) == "[]");
  CHECK(json_object().add("a", 1).add("b", true).add("c", "x").add("d", 0.5).text() ==
        R"({"a":1,"b":true,"c":"x","d":0.5})");
  CHECK(json_array({"1", "2"}) == "[1,2]");
}

TEST_CASE("json: strings with special characters") {
  CHECK(json_string("a\"b\\c\n\x01") == R"("a\"b\\c\n\u0001")");
  CHECK(json_string("caf\xc3\xa9 \xf0\x9f\x8e\xbb") == "\"caf\xc3\xa9 \xf0\x9f\x8e\xbb\"");
  // Invalid UTF-8: a single byte, an overlong form, a surrogate, a truncated sequence.
  CHECK(json_string("\xff|\xc0\xaf|\xed\xa0\x80|\xc3") ==
        R"("\ufffd|\ufffd\ufffd|\ufffd\ufffd\ufffd|\ufffd")");
}

TEST_CASE("json: numbers survive the round trip, and infinities and NaNs are strings") {
  CHECK(json_number(0.1) == "0.1");
  CHECK(std::stod(json_number(1.0 / 3)) == 1.0 / 3);
  CHECK(json_number(NAN) == "\"NaN\"");
  CHECK(json_number(-std::numeric_limits<double>::infinity()) == "\"-Infinity\"");
}
