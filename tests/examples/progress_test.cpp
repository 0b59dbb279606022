// SPDX-License-Identifier: Apache-2.0
// A bar on a terminal, plain lines elsewhere, no output on other ranks.
#include "train_digits/progress.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using train_digits::progress;

namespace {

template <class F>
std::string printed(F&& f) {
  char* bytes = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&bytes, &size);
  REQUIRE(out != nullptr);
  f(out);
  std::fclose(out);
  std::string result(bytes, size);
  std::free(bytes);
  return result;
}

}  // namespace

TEST_CASE("progress: without a terminal there are only lines") {
  CHECK(printed([](std::FILE* out) {
          progress p(out, false);
          p.bar("epoch", 1, 2, "half");
          p.line("done");
        }) == "done\n");
}

TEST_CASE("progress: on a terminal the line replaces the bar") {
  const std::string text = printed([](std::FILE* out) {
    progress p(out, true);
    p.bar("epoch", 15, 30, "note");
    p.bar("epoch", 16, 30, "too soon to draw again");
    p.line("done");
    p.line("next");
  });
  CHECK(text == "\repoch [###############...............] 15/30  note\033[K\r\033[Kdone\nnext\n");
}

TEST_CASE("progress: nullptr prints nothing") {
  progress p(nullptr, true);
  p.bar("epoch", 1, 0, "");
  p.line("unheard");
}

TEST_CASE("progress: the launcher passes on whether its output is a terminal") {
  const char* const before = std::getenv("TUTTI_TTY");
  const std::string kept = before != nullptr ? before : "";
  setenv("TUTTI_TTY", "1", 1);
  CHECK(train_digits::output_is_terminal());
  setenv("TUTTI_TTY", "0", 1);
  CHECK_FALSE(train_digits::output_is_terminal());
  if (before != nullptr)
    setenv("TUTTI_TTY", kept.c_str(), 1);
  else
    unsetenv("TUTTI_TTY");
}

TEST_CASE("progress: text formats any length") {
  CHECK(train_digits::text("%s-%d", std::string(5000, 'x').c_str(), 7) == std::string(5000, 'x') + "-7");
  CHECK(train_digits::text("%s", "").empty());
}
