// SPDX-License-Identifier: Apache-2.0
// The choice of algorithms: few steps for short data, few bytes for long data, and overrides by the user.
#include "coll/choice.hpp"
#include "coll/cost.hpp"
#include "support/command.hpp"
#include "support/contains.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <tutti/error.hpp>

using tutti::algorithm;
using tutti::errc;
using tutti::error;
using tutti::coll::choose;
using tutti::coll::operation_kind;
using tutti::coll::rule;
using tutti::coll::situation;

namespace {

situation an_all_reduce(std::size_t bytes, int ranks) {
  situation s;
  s.kind = operation_kind::all_reduce;
  s.bytes = bytes;
  s.ranks = ranks;
  return s;
}

bool chosen_from_outside() {
  return std::getenv("TUTTI_ALGORITHMS") != nullptr || std::getenv("TUTTI_TUNING") != nullptr;
}

std::string refusal_of(const char* rules) {
  try {
    tutti::coll::parse_rules(rules, "a file");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    return e.what();
  }
  return {};
}

using tutti::test::contains;

// What a process with these variables chooses, which reads them once: see the probe.
tutti::test::command_result chosen_with(const std::string& variables) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return tutti::test::run_shell("env -u TUTTI_ALGORITHMS -u TUTTI_TUNING " + variables + " " +
                                    tutti::test::quoted(program) + " --no-skip --test-case='probe: choices'",
                                20);
}
std::string choices(algorithm few, algorithm many) {
  return std::string("8 bytes: ") + tutti::name_of(few) + ", 1 MiB: " + tutti::name_of(many) +
         ", by the call: direct\n";
}

}  // namespace

TEST_CASE("probe: choices" * doctest::skip()) {
  const auto name = [](std::size_t bytes, algorithm wanted) {
    return tutti::name_of(choose(an_all_reduce(bytes, 4), wanted));
  };
  try {
    std::printf("8 bytes: %s, 1 MiB: %s, by the call: %s\n", name(8, algorithm::automatic),
                name(1 << 20, algorithm::automatic), name(8, algorithm::direct));
  } catch (const error& e) {
    std::printf("%s: %s\n", e.code() == errc::invalid_argument ? "invalid_argument" : "?", e.what());
  }
}

TEST_CASE("choice: the environment forces algorithms, or has rules for them; a call's own goes before") {
  using enum algorithm;
  const tutti::test::scratch_directory scratch;
  const std::string rules = "TUTTI_TUNING=" + scratch
                                                  .write("rules",
                                                         "all_reduce ranks>=5 bytes<=any rabenseifner\n"
                                                         "all_reduce ranks>=2 bytes<=64 hierarchical\n"
                                                         "broadcast ranks>=2 bytes<=any binomial\n"
                                                         "all_reduce ranks>=4 bytes<=64 recursive_doubling\n")
                                                  .string();
  const struct {
    std::string variables;
    std::string expected;
  } cases[] = {
      {"", choices(one_shot, ring)},
      {"TUTTI_ALGORITHMS=all_reduce=rabenseifner", choices(rabenseifner, rabenseifner)},
      {"TUTTI_ALGORITHMS=broadcast=binomial,all_reduce=rabenseifner", choices(rabenseifner, rabenseifner)},
      {"TUTTI_ALGORITHMS=broadcast=binomial", choices(one_shot, ring)},
      {"TUTTI_ALGORITHMS=all_reduce=automatic", choices(one_shot, ring)},
      {"TUTTI_ALGORITHMS=all_reduce=hierarchical", choices(one_shot, ring)},  // there is one host
      {rules, choices(recursive_doubling, ring)},
      {rules + " TUTTI_ALGORITHMS=all_reduce=rabenseifner", choices(rabenseifner, rabenseifner)},
      {rules + " TUTTI_ALGORITHMS=all_reduce=hierarchical", choices(recursive_doubling, ring)},
  };
  for (const auto& one : cases) {
    const tutti::test::command_result result = chosen_with(one.variables);
    CAPTURE(one.variables);
    CAPTURE(result.output);
    CHECK(result.exit_code == 0);
    CHECK(result.says(one.expected));
  }
}

TEST_CASE("choice: variables that say nothing valid are refused") {
  const tutti::test::scratch_directory scratch;
  const std::string bad = scratch.write("bad", "all_reduce ranks>=2 bytes<=8 bruck\n").string();
  const std::string fifo = (scratch.path() / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const struct {
    std::string variables;
    std::string expected;
  } cases[] = {
      {"TUTTI_ALGORITHMS=all_reduce=bruck", "bruck is no algorithm of all_reduce; there are"},
      {"TUTTI_ALGORITHMS=allreduce=ring", "'allreduce=ring': write collective=algorithm"},
      {"TUTTI_ALGORITHMS=all_reduce", "'all_reduce': write collective=algorithm"},
      {"TUTTI_TUNING=" + bad, bad + ": 'all_reduce ranks>=2 bytes<=8 bruck': bruck is no algorithm"},
      {"TUTTI_TUNING=" + bad + ".not", bad + ".not: no file that can be read (No such file or directory)"},
      {"TUTTI_TUNING=" + scratch.path().string(), "no file that can be read (Is a directory)"},
      {"TUTTI_TUNING=" + fifo, "no file that can be read"},
      {"TUTTI_TUNING=/proc/self/mem", "no file that can be read (Input/output error)"},
  };
  for (const auto& one : cases) {
    const tutti::test::command_result result = chosen_with(one.variables);
    CAPTURE(one.variables);
    CAPTURE(result.output);
    CHECK(result.says("invalid_argument: "));
    CHECK(result.says(one.expected));
  }
}

TEST_CASE("choice: short data take few steps, long data a ring") {
  if (chosen_from_outside()) return;
  for (const int ranks : {2, 3, 4, 8, 64, 1000}) {
    CAPTURE(ranks);
    // Between few hosts one step costs least, though it takes as many messages as there are hosts.
    const algorithm few_steps = ranks > 2 && ranks < 16 ? algorithm::one_shot : algorithm::recursive_doubling;
    CHECK(choose(an_all_reduce(0, ranks), algorithm::automatic) == few_steps);
    CHECK(choose(an_all_reduce(8, ranks), algorithm::automatic) == few_steps);
    CHECK(choose(an_all_reduce(std::size_t{1} << 30, ranks), algorithm::automatic) == algorithm::ring);
  }
}

TEST_CASE("choice: what is chosen costs at most a tenth more than the least") {
  if (chosen_from_outside()) return;
  for (const tutti::detail::operation_row& row : tutti::detail::operation_rows) {
    if (row.of != tutti::detail::family::collective || row.uneven()) continue;
    for (const int ranks : {2, 3, 5, 16, 24, 64, 700})
      for (std::size_t bytes = 1; bytes <= std::size_t{64} << 20; bytes *= 4) {
        situation s;
        s.kind = row.kind;
        s.bytes = bytes;
        s.ranks = ranks;
        const auto time = [&](algorithm a) {
          return tutti::coll::cost_of(s.kind, a, static_cast<double>(bytes), ranks,
                                      tutti::coll::network_links)
              .time;
        };
        const algorithm chosen = choose(s, algorithm::automatic);
        CAPTURE(std::string(row.name));
        CAPTURE(std::string(tutti::name_of(chosen)));
        CAPTURE(ranks);
        CAPTURE(bytes);
        for (const algorithm a : tutti::all_algorithms())
          if (tutti::coll::fits(a, s) && time(a) >= 0) CHECK(time(chosen) <= 1.1 * 1.1 * time(a));
      }
  }
}

TEST_CASE("choice: of more ranks, whole vectors are read up to fewer bytes") {
  using tutti::coll::rounds_cost, tutti::coll::whole_cost, tutti::coll::whole_limits;
  CHECK(whole_limits[2] == tutti::limits::collectives::exchange_limit);
  for (int ranks = 3; ranks <= 16; ++ranks) {
    const auto limit = static_cast<double>(whole_limits[static_cast<std::size_t>(ranks)]);
    CAPTURE(ranks);
    CHECK(whole_limits[static_cast<std::size_t>(ranks)] < whole_limits[static_cast<std::size_t>(ranks) - 1]);
    CHECK(whole_cost(limit, ranks) <= rounds_cost(limit, ranks));
    CHECK(whole_cost(limit + 1, ranks) > rounds_cost(limit + 1, ranks));
  }
}

TEST_CASE("choice: halves with float partial results are reduced all at once, unless they are few") {
  if (chosen_from_outside()) return;
  situation s = an_all_reduce(1 << 20, 4);
  s.halves = true;
  CHECK(choose(s, algorithm::automatic) == algorithm::direct);
  s.kind = operation_kind::reduce_scatter;
  CHECK(choose(s, algorithm::automatic) == algorithm::direct);
  s = an_all_reduce(64, 4);
  s.halves = s.one_host = true;
  CHECK(choose(s, algorithm::automatic) == algorithm::recursive_doubling);
}

TEST_CASE("choice: reduce_scatter of few bytes sends fewer messages on one host than between few hosts") {
  situation s;
  s.kind = operation_kind::reduce_scatter;
  s.bytes = 1024;
  s.ranks = 4;
  CHECK(choose(s, algorithm::automatic) == algorithm::direct);
  s.one_host = true;
  CHECK(choose(s, algorithm::automatic) == algorithm::bruck);
  s.bytes = 256 * 1024;
  CHECK(choose(s, algorithm::automatic) == algorithm::direct);
  s.one_host = false;
  s.ranks = 64;
  CHECK(choose(s, algorithm::automatic) == algorithm::bruck);
}

TEST_CASE("choice: all_reduce of few bytes between few hosts takes one step") {
  situation s = an_all_reduce(1024, 4);
  CHECK(choose(s, algorithm::automatic) == algorithm::one_shot);
  s.bytes = 64 * 1024;
  CHECK(choose(s, algorithm::automatic) == algorithm::recursive_doubling);
  s = an_all_reduce(1024, 16);
  CHECK(choose(s, algorithm::automatic) == algorithm::recursive_doubling);
  // Each message takes time of a processor on both sides, which is most of the time on one host.
  s = an_all_reduce(1024, 4);
  s.one_host = true;
  CHECK(choose(s, algorithm::automatic) == algorithm::recursive_doubling);
}

TEST_CASE("choice: every collective gets a suitable algorithm in every situation") {
  for (int k = static_cast<int>(operation_kind::barrier); k < static_cast<int>(operation_kind::group); ++k) {
    for (const int ranks : {1, 2, 3, 8, 33}) {
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{1} << 32}) {
        for (const int flags : {0, 1, 2, 3, 4, 5}) {
          situation s;
          s.kind = static_cast<operation_kind>(k);
          s.ranks = ranks;
          s.bytes = bytes;
          s.hierarchy = (flags & 1) != 0;
          s.even_hosts = (flags & 2) != 0;
          s.one_host = flags == 4;
          s.neighbours = flags == 5;
          s.even_blocks = s.kind < operation_kind::scatter_v;
          s.halves = ranks == 3;
          const algorithm a = choose(s, algorithm::automatic);
          CAPTURE(std::string(tutti::coll::name_of(s.kind)));
          CAPTURE(std::string(tutti::name_of(a)));
          CHECK(tutti::coll::has(s.kind, a));
          CHECK(tutti::coll::fits(a, s));
        }
      }
    }
  }
}

TEST_CASE("choice: a call's algorithm is used, or refused with a list of suitable ones") {
  CHECK(choose(an_all_reduce(8, 4), algorithm::ring) == algorithm::ring);
  CHECK_THROWS_WITH_AS(choose(an_all_reduce(8, 4), algorithm::bruck),
                       doctest::Contains("there are direct, one_shot, rabenseifner"), error);
  CHECK_THROWS_WITH_AS(choose(an_all_reduce(8, 4), algorithm::hierarchical),
                       doctest::Contains("several hosts"), error);
  situation uneven;
  uneven.kind = operation_kind::all_gather_v;
  uneven.ranks = 4;
  uneven.even_blocks = false;
  CHECK_THROWS_WITH_AS(choose(uneven, algorithm::bruck), doctest::Contains("equal size"), error);
}

TEST_CASE("choice: rules have the documented effect") {
  for (const tutti::detail::operation_row& row : tutti::detail::operation_rows) {
    for (const algorithm a : tutti::all_algorithms()) {
      if (row.uneven() || !tutti::coll::has(row.kind, a)) continue;
      const std::string text = std::string(row.name) + " ranks>=2 bytes<=64 " + tutti::name_of(a);
      const auto parsed = tutti::coll::parse_rules(text, "a row");
      REQUIRE(parsed.size() == 1);
      CHECK(parsed[0].kind == row.kind);
      CHECK(parsed[0].use == a);
    }
  }
  const auto rules = tutti::coll::parse_rules(
      "# measured here\n\n all_reduce ranks>=4 bytes<=any ring hierarchical # all\n", "");
  REQUIRE(rules.size() == 1);
  CHECK(rules[0].kind == operation_kind::all_reduce);
  CHECK(rules[0].ranks == 4);
  CHECK(rules[0].bytes == ~std::size_t{0});
  CHECK(rules[0].use == algorithm::ring);
  CHECK(rules[0].hierarchy);
}

TEST_CASE("choice: invalid rules are refused, with the file and the line") {
  CHECK(contains(refusal_of("all_reduce ranks>=2 bytes<=8 bruck"),
                 "bruck is no algorithm of all_reduce; there are"));
  CHECK(contains(refusal_of("all_reduce ranks>=2 bytes<=8 bruck"), "a file: 'all_reduce ranks>=2"));
  CHECK(contains(refusal_of("allreduce ranks>=2 bytes<=8 ring"), "no collective 'allreduce'"));
  CHECK(contains(refusal_of("all_reduce ranks>=x bytes<=8 ring"), "'ranks>=x' should be ranks>=NUMBER"));
  CHECK(contains(refusal_of("all_reduce ranks>=2 bytes<= ring"), "'bytes<=' should be bytes<=NUMBER"));
  CHECK(contains(refusal_of("all_reduce ranks>=2 8 ring"), "should be bytes<="));
  CHECK(contains(refusal_of("all_reduce ring"), "a rule is:"));
  CHECK(contains(refusal_of("all_reduce ranks>=2 bytes<=8 ring three_levels"), "a rule is:"));
}
