// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{
    .program = "tutti-perf", .launcher = "tutti-run", .has_shared_memory = true, .can_prepare = true};

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

TEST_CASE("only some commands have prepared operations") {
  CHECK_FALSE(parsed({"latency"}).prepared);
  CHECK(parsed({"latency", "--prepared"}).prepared);
  CHECK(parsed({"all_reduce", "--prepared"}).prepared);
  CHECK(std::holds_alternative<int>(parse({"barrier", "--prepared"})));
}

TEST_CASE(
    "only programs that access windows have one-sided commands; --access is for those with several ways") {
  const auto read = [](std::vector<std::string> accesses, std::vector<const char*> words) {
    words.insert(words.begin(), "mpi-perf");
    const perf::program_names some{
        .program = "mpi-perf", .launcher = "mpirun", .accesses = std::move(accesses)};
    return perf::parse_command_line(static_cast<int>(words.size()), words.data(), some);
  };
  const auto is_refused = [](const auto& result) { return std::holds_alternative<int>(result); };
  CHECK(is_refused(read({}, {"fetch_add"})));
  CHECK_FALSE(is_refused(read({"window"}, {"fetch_add"})));
  CHECK(is_refused(read({"window"}, {"put_signal", "--access", "window"})));
  const auto chosen = read({"put", "store"}, {"put_signal", "--access", "store", "--memory", "shared"});
  REQUIRE_FALSE(is_refused(chosen));
  CHECK(std::get<perf::options>(chosen).access == "store");
  CHECK(is_refused(read({"put", "store"}, {"put_signal", "--access", "get"})));
  CHECK(is_refused(read({"put", "store"}, {"latency", "--memory", "shared"})));
}

TEST_CASE("programs with a choice of memory accept --memory") {
  CHECK(parsed({"latency"}).where == perf::memory::ordinary);
  CHECK(parsed({"latency", "--memory", "ordinary"}).where == perf::memory::ordinary);
  CHECK(parsed({"all_reduce", "--memory", "shared"}).where == perf::memory::shared);
  const auto wrong = parse({"latency", "--memory", "other"});
  REQUIRE(std::holds_alternative<int>(wrong));
  CHECK(std::get<int>(wrong) == 2);
  const std::vector<const char*> rival{"mpi-perf", "latency", "--memory", "shared"};
  ::setenv("RANK", "0", 1);
  const auto refused =
      perf::parse_command_line(static_cast<int>(rival.size()), rival.data(), {"mpi-perf", "mpirun"});
  ::unsetenv("RANK");
  REQUIRE(std::holds_alternative<int>(refused));
  CHECK(std::get<int>(refused) == 2);
}

TEST_CASE("overlap accepts the modes of computing that the library supports") {
  const auto all = parsed({"overlap"}).modes;
  CHECK(all ==
        std::vector<perf::computing>{perf::computing::device, perf::computing::one, perf::computing::all});
  CHECK(parsed({"overlap", "--compute", "all,device"}).modes ==
        std::vector<perf::computing>{perf::computing::all, perf::computing::device});
  CHECK(std::get<int>(parse({"overlap", "--compute", "polled"})) == 2);
  CHECK(parsed({"overlap"}).sizes == std::vector<std::size_t>{16 << 20});
}

TEST_CASE("block sizes are rounded up to whole floats for each rank") {
  using perf::command;
  CHECK(perf::usable_size(command::all_gather, 64, 4) == 64);
  CHECK(perf::usable_size(command::all_gather, 64, 3) == 72);
  CHECK(perf::usable_size(command::reduce_scatter, 1, 2) == 8);
  CHECK(perf::usable_size(command::broadcast, 3, 4) == 3);
  CHECK(std::get<int>(parse({"all_to_all", "--sizes", "0"})) == 2);
}

TEST_CASE("startup and barrier have no sizes; startup has ranks and launcher") {
  CHECK(parsed({"barrier"}).sizes == std::vector<std::size_t>{0});
  CHECK(std::get<int>(parse({"barrier", "--sizes", "8"})) == 2);
  const perf::options o = parsed({"startup", "--ranks", "16", "--launcher", "mpirun --bind-to none"});
  CHECK(o.ranks == 16);
  CHECK(o.launcher == "mpirun --bind-to none");
  CHECK(std::get<int>(parse({"startup", "--pin"})) == 2);
  CHECK(parsed({"latency", "--pin"}).pin);
  CHECK(parsed({"latency", "--rewrite"}).rewrites);
  CHECK(std::get<int>(parse({"barrier", "--rewrite"})) == 2);
}

TEST_CASE("a program that forks its ranks has --ranks, and only its own features") {
  const perf::program_names forks{
      "gloo-perf", "", false, {perf::command::latency, perf::command::all_reduce}, {"ring", "bcube"}};
  const auto parse_forking = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "gloo-perf");
    return perf::parse_command_line(static_cast<int>(words.size()), words.data(), forks);
  };
  const auto said = parse_forking({"all_reduce", "--ranks", "4", "--algorithm", "bcube"});
  REQUIRE(std::holds_alternative<perf::options>(said));
  CHECK(std::get<perf::options>(said).ranks == 4);
  CHECK(std::get<perf::options>(said).algorithm == "bcube");
  CHECK(std::get<int>(parse_forking({"barrier"})) == 2);
  CHECK(std::get<int>(parse_forking({"all_reduce", "--algorithm", "tree"})) == 2);
  CHECK(forks.line_for(perf::command::latency, 2) == "gloo-perf latency --ranks 2");
  CHECK(names.line_for(perf::command::startup, 4) == "tutti-perf startup --ranks 4");
}

TEST_CASE("wrong command lines exit with 2, help with 0") {
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
    // Only rank 0 fails.
    CHECK(std::get<int>(parse(wrong, "1")) == 0);
  }
  CHECK(std::get<int>(parse({"--help"})) == 0);
  CHECK(std::get<int>(parse({"latency", "--help"})) == 0);
}

TEST_CASE("the number of ranks is checked, and the error has the cure") {
  perf::options o;
  CHECK(perf::wrong_ranks(o, 2, names).empty());
  CHECK(perf::wrong_ranks(o, 1, names) ==
        "latency needs an even number of ranks, this is a world of 1: tutti-run -n 2 tutti-perf latency");
  CHECK_FALSE(perf::wrong_ranks(o, 3, names).empty());
  CHECK(perf::wrong_ranks(o, 4, names).empty());
  o.what = perf::command::bandwidth;
  CHECK_FALSE(perf::wrong_ranks(o, 4, names).empty());
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
