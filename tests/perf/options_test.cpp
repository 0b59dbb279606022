// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{"tutti-perf", "tutti-run", true};

std::variant<perf::options, int> parse(std::vector<const char*> words, const char* rank = "0") {
  words.insert(words.begin(), "tutti-perf");
  ::setenv("RANK", rank, 1);
  auto result = perf::parse_command_line(static_cast<int>(words.size()), words.data(), names);
  ::unsetenv("RANK");
  return result;
}

perf::options parsed(std::vector<const char*> words) {
  const auto result = parse(std::move(words));
  REQUIRE(std::holds_alternative<perf::options>(result));
  return std::get<perf::options>(result);
}

}  // namespace

TEST_CASE("defaults") {
  const perf::options o = parsed({"latency"});
  CHECK(o.what == perf::command::latency);
  CHECK(o.sizes.front() == 8);
  CHECK(o.sizes.back() == 16 << 20);
  CHECK(o.iterations == 0);
  CHECK(parsed({"all_reduce"}).sizes.front() == 4);
}

TEST_CASE("each command reads its options; the last of two counts") {
  const perf::options o = parsed({"bandwidth", "--sizes", "8,16", "--iterations", "5", "--warmup", "0",
                                  "--seconds", "2", "--window", "3", "--json", "-", "--sizes", "1K"});
  CHECK(o.what == perf::command::bandwidth);
  CHECK(o.sizes == std::vector<std::size_t>{1024});
  CHECK(o.iterations == 5);
  CHECK(o.warmup == 0);
  CHECK(o.seconds == 2);
  CHECK(perf::window_for(o, 8) == 3);
  CHECK(o.json == "-");
}

TEST_CASE("where the messages lie, for programs that have a choice") {
  CHECK(parsed({"latency"}).where == perf::memory::ordinary);
  CHECK(parsed({"latency", "--memory", "ordinary"}).where == perf::memory::ordinary);
  CHECK(parsed({"all_reduce", "--memory", "shared"}).where == perf::memory::shared);
  const auto wrong = parse({"latency", "--memory", "other"});
  REQUIRE(std::holds_alternative<int>(wrong));
  CHECK(std::get<int>(wrong) == 2);
  const std::vector<const char*> rival{"mpi-perf", "latency", "--memory", "shared"};
  ::setenv("RANK", "0", 1);
  const auto refused = perf::parse_command_line(static_cast<int>(rival.size()), rival.data(), {"mpi-perf", "mpirun"});
  ::unsetenv("RANK");
  REQUIRE(std::holds_alternative<int>(refused));
  CHECK(std::get<int>(refused) == 2);
}

TEST_CASE("wrong command lines end with 2, help with 0") {
  using words = std::vector<const char*>;
  for (const words& wrong :
       {words{}, words{"speed"}, words{"latency", "--sizes", "x"}, words{"latency", "--seconds", "nan"},
        words{"latency", "--seconds", "0"}, words{"latency", "--iterations", "0"},
        words{"latency", "--window", "3"}, words{"all_reduce", "--sizes", "6"},
        words{"all_reduce", "--sizes", "0"}, words{"latency", "bandwidth"}, words{"latency", "8"}}) {
    CAPTURE(wrong.size());
    const auto result = parse(wrong);
    REQUIRE(std::holds_alternative<int>(result));
    CHECK(std::get<int>(result) == 2);
    // Rank 0 is the one that fails.
    CHECK(std::get<int>(parse(wrong, "1")) == 0);
  }
  CHECK(std::get<int>(parse({"--help"})) == 0);
  CHECK(std::get<int>(parse({"latency", "--help"})) == 0);
}

TEST_CASE("the number of ranks is checked, and the cure named") {
  perf::options o;
  CHECK(perf::wrong_ranks(o, 2, names).empty());
  CHECK(perf::wrong_ranks(o, 1, names) ==
        "latency needs 2 ranks, this is a world of 1: tutti-run -n 2 tutti-perf latency");
  CHECK_FALSE(perf::wrong_ranks(o, 3, names).empty());
  o.what = perf::command::all_reduce;
  CHECK(perf::wrong_ranks(o, 4, names).empty());
  CHECK_FALSE(perf::wrong_ranks(o, 1, names).empty());
}

TEST_CASE("windows of long messages are shorter") {
  const perf::options o;
  CHECK(perf::window_for(o, 0) == 64);
  CHECK(perf::window_for(o, 1 << 20) == 64);
  CHECK(perf::window_for(o, 4 << 20) == 16);
  CHECK(perf::window_for(o, 1 << 28) == 4);
}
