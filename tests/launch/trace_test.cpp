// SPDX-License-Identifier: Apache-2.0
// tutti-run --trace: the contents of the file, read by a strict parser, even after a rank was killed.
#include "launch/launched.hpp"
#include "support/contains.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

using nlohmann::json;
using tutti::launch::testing::contents;
using tutti::launch::testing::ending;
using tutti::launch::testing::free_address;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;

namespace {

using tutti::test::contains;

// The events of a file. Checks that Perfetto accepts each: names and types of Chrome's trace format, and no
// overlaps on a track.
json events_of(const std::string& path) {
  const json all = json::parse(contents(path));
  REQUIRE(all.is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const json& e : all) {
    CAPTURE(e.dump());
    REQUIRE(e.at("name").is_string());
    REQUIRE(e.at("pid").is_number_integer());
    REQUIRE(e.at("tid").is_number_integer());
    const std::string phase = e.at("ph");
    if (phase == "M") continue;
    REQUIRE(e.at("cat").is_string());
    REQUIRE(e.at("ts").is_number());
    if (phase == "i") {
      REQUIRE(e.at("s") == "p");
      continue;
    }
    REQUIRE(phase == "X");
    REQUIRE(e.at("dur").get<double>() >= 0);
    tracks[{e.at("pid"), e.at("tid")}].emplace_back(e.at("ts").get<double>(), e.at("dur").get<double>());
  }
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      REQUIRE(spans[i].first >= spans[i - 1].first + spans[i - 1].second - 0.002);
  }
  return all;
}

std::vector<json> named(const json& events, const std::string& name, int rank) {
  std::vector<json> found;
  for (const json& e : events)
    if (e.at("name") == name && e.at("pid") == rank && e.at("ph") == "X") found.push_back(e);
  return found;
}

ending run(const std::string& program, const std::string& file, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", "2", "--trace", file});
  options.insert(options.end(), {TUTTI_STUCK_PATH, program});
  return launched(options).finish();
}

}  // namespace

TEST_CASE("trace: operations, computations and spans of all ranks are in one file, on one clock") {
  const temporary_directory place;
  const std::string file = place.path() + "/trace.json";
  const ending end = run("works", file);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  CHECK(contains(end.error, "events are in '" + file + "'"));
  CHECK(contains(end.error, "of 20 collectives, on average "));
  CHECK_FALSE(contains(end.error, "too many for the recorder"));
  const json events = events_of(file);
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    CHECK(named(events, "all_reduce", rank).size() == 20);
    CHECK(named(events, "send", rank).size() == 20);
    CHECK(named(events, "recv", rank).size() == 20);
    const std::vector<json> computations = named(events, "compute", rank);
    CHECK(computations.size() == 20);
    // Of 1,000 us by the system's clock. The trace uses the processor's counter, which is fitted to it.
    for (const json& c : computations) CHECK(c.at("dur").get<double>() >= 990);
    const std::vector<json> steps = named(events, "step", rank);
    REQUIRE(steps.size() == 20);
    // Each step contains its computation.
    for (std::size_t i = 0; i < steps.size() && i < computations.size(); ++i) {
      CHECK(computations[i].at("ts").get<double>() >= steps[i].at("ts").get<double>());
      CHECK(computations[i].at("ts").get<double>() + computations[i].at("dur").get<double>() <=
            steps[i].at("ts").get<double>() + steps[i].at("dur").get<double>());
    }
    const json args = named(events, "all_reduce", rank).front().at("args");
    CHECK(args.at("communicator") == "world");
    CHECK(args.at("bytes") == 8 << 16);
    CHECK(args.at("sequence") == 1);
    CHECK(contains(args.at("at"), "stuck.cpp:"));
  }
  // No rank ends a collective before all have begun it.
  const std::vector<json> here = named(events, "all_reduce", 0), there = named(events, "all_reduce", 1);
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(here[i].at("args").at("sequence") == there[i].at("args").at("sequence"));
    CHECK(here[i].at("ts").get<double>() + here[i].at("dur").get<double>() >=
          there[i].at("ts").get<double>());
    CHECK(there[i].at("ts").get<double>() + there[i].at("dur").get<double>() >=
          here[i].at("ts").get<double>());
  }
}

TEST_CASE("trace: the file has the operations of a killed rank, and the one it was in") {
  const temporary_directory place;
  const std::string file = place.path() + "/trace.json";
  const ending end = run("works_and_one_is_killed", file);
  CAPTURE(end.error);
  CHECK(end.exit_code == 128 + SIGKILL);
  const json events = events_of(file);
  CHECK(named(events, "all_reduce", 1).size() == 20);
  CHECK(named(events, "step", 1).size() == 20);
  CHECK(named(events, "all_reduce", 0).size() == 20);
  CHECK_FALSE(named(events, "barrier", 0).empty());
}

// Without the launcher's recorder, as under another starter.
ending run_alone(const std::string& name, const std::string& file) {
  return tutti::launch::testing::launch({"-n", "1", "sh", "-c",
                                         "unset TUTTI_FLIGHT; TUTTI_TRACE=" + file + " exec \"$0\" " + name,
                                         TUTTI_STUCK_PATH});
}

TEST_CASE("trace: a child that a traced program has forked does not write to its file") {
  const temporary_directory place;
  const std::string file = place.path() + "/trace.json";
  const ending end = run_alone("forks_and_works", file);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  CHECK(named(events_of(file), "barrier", 0).size() >= 20);
}

TEST_CASE("trace: a full disk is reported, and the program goes on") {
  const ending end = run_alone("forks_and_works", "/dev/full");
  CHECK(end.exit_code == 0);
  CHECK_MESSAGE(contains(end.error, "TUTTI_TRACE '/dev/full': that file is incomplete"), end.error);
}

TEST_CASE("trace: a file of limited size is valid JSON, and reports what it lacks") {
  const temporary_directory place;
  const std::string file = place.path() + "/trace.json";
  launched job({"-n", "2", "--trace", file, TUTTI_STUCK_PATH, "barriers"}, {"TUTTI_TRACE_MIB=1"});
  job.wait_for("ready", 2);
  // A barrier takes microseconds, an event 200 bytes. The file is full when it does not grow any more.
  std::size_t before = 0;
  for (int looks = 0; looks < 300; ++looks) {
    job.read_for(std::chrono::milliseconds(200));
    const std::size_t now = contents(file).size();
    if (now == before && now > (1 << 20) - 2000) break;
    before = now;
  }
  job.signal(SIGTERM);
  const ending end = job.finish();
  CAPTURE(end.error);
  CHECK(contains(end.error, "more were left out of it: it has 1 MiB"));
  CHECK(contents(file).size() <= (1 << 20) + 100);
  events_of(file);
}

TEST_CASE("trace: the files of all nodes use one clock") {
  const temporary_directory place;
  const std::string file = place.path() + "/trace.json";
  const std::string address = free_address();
  const auto node = [&](const char* number) {
    return std::vector<std::string>{"-n",       "1",     "--nnodes", "2",  "--node-rank",    number,
                                    "--master", address, "--trace",  file, TUTTI_STUCK_PATH, "works"};
  };
  launched first(node("0"), {"TUTTI_SECRET=secret"});
  launched second(node("1"), {"TUTTI_SECRET=secret"});
  const ending of_first = first.finish(), of_second = second.finish();
  CAPTURE(of_first.error);
  CAPTURE(of_second.error);
  REQUIRE(of_first.exit_code == 0);
  REQUIRE(of_second.exit_code == 0);
  const std::vector<json> here = named(events_of(file), "all_reduce", 0),
                          there = named(events_of(file + ".node-1"), "all_reduce", 1);
  REQUIRE(here.size() == 20);
  REQUIRE(there.size() == 20);
  for (std::size_t i = 0; i < here.size(); ++i)  // within a millisecond, on one machine
    CHECK(here[i].at("ts").get<double>() + here[i].at("dur").get<double>() + 1000 >=
          there[i].at("ts").get<double>());
}

TEST_CASE("trace: a file that cannot be made is an error before the ranks start") {
  const ending end = run("works", "/nonexistent/trace.json");
  CHECK(end.exit_code == 1);
  CHECK(contains(end.error, "cannot make the file '/nonexistent/trace.json' of --trace: No such file"));
}
