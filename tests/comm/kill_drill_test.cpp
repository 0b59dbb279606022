// SPDX-License-Identifier: Apache-2.0
// SIGKILL at random moments of every collective and of messages: the survivors notice it soon, agree on the
// remaining ranks, and continue with right results. No rank hangs.
//
// Then one kill in each job, in a stream of three collectives: each survivor's error names the dead rank.
//
// TUTTI_KILL_DRILL: number of kills for each transport (and loop, as a test of its own); default 12.
// TUTTI_TEST_SEED replays a run.
#include "launch/launched.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;

namespace {

constexpr long timeout_s = 20;

int number_from(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? std::atoi(given) : otherwise;
}

std::vector<std::string> transports() {
  const char* const other = std::getenv("TUTTI_TEST_TRANSPORT");
  return other != nullptr ? std::vector<std::string>{other} : std::vector<std::string>{"shm", "tcp"};
}

struct figures {
  std::vector<long> noticed_us, mended_us;
  int kills = 0;
};

std::string summary(const char* what, std::vector<long> us) {
  std::sort(us.begin(), us.end());
  std::ostringstream text;
  text << what << " median " << static_cast<double>(us[us.size() / 2]) / 1000 << " ms, 99 % "
       << static_cast<double>(us[us.size() * 99 / 100]) / 1000 << " ms, worst "
       << static_cast<double>(us.back()) / 1000 << " ms";
  return text.str();
}

// One job, in which ranks are killed until one is left.
void run_job(const std::string& transport, int ranks, std::uint64_t seed, figures& all) {
  CAPTURE(transport);
  CAPTURE(ranks);
  CAPTURE(seed);
  const temporary_directory here;
  const int kills = ranks - 1;
  launched job({"-n", std::to_string(ranks), "--tag-output", "never", "--on-failure", "continue",
                TUTTI_KILL_DRILL_PATH, here.path() + "/deaths", std::to_string(seed), std::to_string(kills)},
               {"TUTTI_TRANSPORTS=" + transport, "TUTTI_TIMEOUT=" + std::to_string(timeout_s)});
  const ending end = job.finish();
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.output.find("WRONG") == std::string::npos);
  CHECK(end.output.find("is left") != std::string::npos);
  CHECK(end.exit_code == 128 + 9);
  int reports = 0;
  std::istringstream lines(end.output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string survivor, round, deed, noticed, mended;
    int rank = 0, number = 0;
    std::size_t elements = 0;
    long noticed_us = 0, mended_us = 0;
    if (!(words >> survivor >> rank >> round >> number >> deed >> elements >> noticed >> noticed_us >>
          mended >> mended_us) ||
        survivor != "survivor")
      continue;
    ++reports;
    all.noticed_us.push_back(noticed_us);
    all.mended_us.push_back(mended_us);
  }
  CHECK(reports == ranks * (ranks - 1) / 2);
  all.kills += kills;
}

void drill(const std::string& transport, long target_ms) {
  const int wanted = number_from("TUTTI_KILL_DRILL", 12);
  const char* const given = std::getenv("TUTTI_TEST_SEED");
  std::uint64_t seed =
      given != nullptr
          ? std::strtoull(given, nullptr, 0)
          : static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count() % 1000000);
  figures all;
  for (int ranks = 5; all.kills < wanted; ranks = ranks == 7 ? 3 : ranks + 1) {
    run_job(transport, ranks, seed, all);
    seed += static_cast<std::uint64_t>(ranks - 1);
  }
  REQUIRE(!all.noticed_us.empty());
  MESSAGE(transport << ": " << all.kills << " kills, " << all.noticed_us.size() << " survivors; "
                    << summary("noticed:", all.noticed_us) << "; " << summary("shrink:", all.mended_us));
  std::sort(all.noticed_us.begin(), all.noticed_us.end());
  // No rank waited for its timeout. The target holds for an idle machine.
  CHECK(all.noticed_us.back() < timeout_s * 1'000'000 / 2);
  if (std::getenv("TUTTI_KILL_DRILL") != nullptr)
    CHECK(all.noticed_us[all.noticed_us.size() / 2] < target_ms * 1000);
}

// Kills one rank in each job, of each of these sizes in turn. Records how long after its death the survivors noticed.
void kill_in_streams(const std::string& transport, const std::vector<int>& sizes, int kills) {
  const int bytes[] = {4, 16, 1024, 64 * 1024, 1024 * 1024, 4 * 1024 * 1024};
  std::vector<long> noticed_us;
  for (int kill = 0; kill < kills; ++kill) {
    const auto turn = std::div(kill, static_cast<int>(sizes.size()));
    const int ranks = sizes[static_cast<std::size_t>(turn.rem)];
    const temporary_directory here;
    launched job({"-n", std::to_string(ranks), "--tag-output", "never", "--on-failure", "continue",
                  TUTTI_KILL_STREAM_PATH, here.path() + "/death", std::to_string(turn.quot % ranks),
                  std::to_string(bytes[static_cast<std::size_t>(kill) % std::size(bytes)]),
                  std::to_string(1000 * (kill % 17))},
                 {"TUTTI_TRANSPORTS=" + transport, "TUTTI_TIMEOUT=" + std::to_string(timeout_s)});
    const ending end = job.finish();
    CAPTURE(transport);
    CAPTURE(kill);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.output.find("WRONG") == std::string::npos);
    CHECK(end.exit_code == 128 + 9);
    const std::size_t before = noticed_us.size();
    std::istringstream lines(end.output);
    for (std::string word; lines >> word;)
      if (long us = 0; word == "noticed" && lines >> us) noticed_us.push_back(us);
    CHECK(noticed_us.size() - before == static_cast<std::size_t>(ranks - 1));
  }
  REQUIRE(!noticed_us.empty());
  MESSAGE(transport << ": " << kills << " kills, " << summary("noticed:", noticed_us));
  CHECK(*std::max_element(noticed_us.begin(), noticed_us.end()) < timeout_s * 1'000'000 / 2);
}

}  // namespace

TEST_CASE("kill drill: survivors name the dead rank") {
  for (const std::string& transport : transports())
    kill_in_streams(transport, {3, 4, 5}, number_from("TUTTI_KILL_DRILL", 6));
}
TEST_CASE("kill drill: 63 survivors of one host, which share memory in two levels, name the dead rank") {
  if (transports().front() != "shm") return;
  kill_in_streams("shm", {64}, std::max(1, number_from("TUTTI_KILL_DRILL", 0) / 12));
}
TEST_CASE("kill drill: one rank after the other is killed until one is left") {
  for (const std::string& transport : transports()) drill(transport, transport == "shm" ? 50 : 200);
}
