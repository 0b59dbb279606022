// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <cstdlib>
#include <string>

using namespace tutti;

namespace {

constexpr const char* name = "TUTTI_TEST_OF_ENV";

struct variable {
  explicit variable(const char* text) { ::setenv(name, text, 1); }
  ~variable() { ::unsetenv(name); }
};

}  // namespace

TEST_CASE("an empty variable counts as absent") {
  ::unsetenv(name);
  CHECK_FALSE(base::env_string(name).has_value());
  CHECK_FALSE(base::env_integer(name).has_value());
  const variable empty("");
  CHECK_FALSE(base::env_string(name).has_value());
  CHECK_FALSE(base::env_integer(name, 1, 2).has_value());
}

TEST_CASE("text is returned unchanged") {
  const variable set(" a b\t");
  CHECK(base::env_string(name) == std::string(" a b\t"));
}

TEST_CASE("integers are accepted up to both limits") {
  const auto read = [](const char* text) {
    const variable set(text);
    return base::env_integer(name);
  };
  CHECK(read("0") == 0);
  CHECK(read("-17") == -17);
  CHECK(read("007") == 7);
  CHECK(read("9223372036854775807") == INT64_MAX);
  CHECK(read("-9223372036854775808") == INT64_MIN);
  const variable set("5");
  CHECK(base::env_integer(name, 5, 5) == 5);
}

TEST_CASE("an invalid integer is an error that names the variable, the text and the range") {
  for (const char* text :
       {"4", "66", "x", "5x", "5 ", " 5", "+5", "5.0", "0x5", "-", "9223372036854775808"}) {
    CAPTURE(text);
    const variable set(text);
    const test::failure wrong = test::failure_of([] { base::env_integer(name, 5, 65); });
    CHECK(wrong.code == errc::invalid_argument);
    CHECK(wrong.says(std::string(name) + "='" + text + "'"));
    CHECK(wrong.says("between 5 and 65"));
  }
}
