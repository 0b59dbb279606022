// SPDX-License-Identifier: Apache-2.0
// Ranks die, tutti-run restarts them, and they meet the remaining ranks in a new epoch, however often and
// whichever rank dies.
#include "launch/launched.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;

namespace {

constexpr int ranks = 3;

ending run(const std::string& transport, const std::vector<std::string>& deaths,
           const std::string& restarts = "5") {
  std::vector<std::string> command = {
      "-n",     std::to_string(ranks), "--tag-output", "never", "--on-failure", "restart", "--max-restarts",
      restarts, TUTTI_COMEBACK_PATH};
  command.insert(command.end(), deaths.begin(), deaths.end());
  return launched(command, {"TUTTI_TRANSPORTS=" + transport, "TUTTI_TIMEOUT=30"}).finish();
}

// The times in ms of the lines that begin with this word.
std::vector<long> times(const std::string& output, const std::string& what) {
  std::vector<long> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find(what); at != std::string::npos)
      found.push_back(std::strtol(line.c_str() + at + what.size(), nullptr, 10));
  return found;
}

void comes_back(const std::vector<std::string>& deaths) {
  for (const char* const transport : {"shm", "tcp"}) {
    const ending end = run(transport, deaths);
    CAPTURE(transport);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, "WRONG") == 0);
    CHECK(count_of(end.output, " done\n") == ranks);
    CHECK(count_of(end.error, "it is started anew") == static_cast<int>(deaths.size()));
    // Within a second of the restart if no other rank dies; later on a busy machine, but not by a timeout.
    if (deaths.size() == 1) {
      const std::vector<long> joined = times(end.output, "start 1 joined ");
      REQUIRE(joined.size() == 1);
      CHECK(joined[0] < 20'000);
      MESSAGE("back in the world " << joined[0] << " ms after main began");
    }
  }
}

}  // namespace

TEST_CASE("rejoin: a rank dies and is restarted") { comes_back({"1:0:10"}); }
TEST_CASE("rejoin: rank 0, which serves the store, dies and is restarted") { comes_back({"0:0:10"}); }
TEST_CASE("rejoin: a rank dies twice") { comes_back({"2:0:10", "2:1:20"}); }
TEST_CASE("rejoin: ranks die one after the other") { comes_back({"1:0:5", "0:0:15", "2:0:25"}); }
TEST_CASE("rejoin: two die at once") { comes_back({"1:0:10", "2:0:10"}); }
TEST_CASE("rejoin: a rank dies again while it joins") { comes_back({"1:0:10", "1:1:init"}); }
TEST_CASE("rejoin: a survivor dies during its rejoin") { comes_back({"1:0:10", "2:0:rejoin"}); }
TEST_CASE("rejoin: rank 0 dies during its rejoin") { comes_back({"1:0:10", "0:0:rejoin"}); }

TEST_CASE("rejoin: when all restarts are used, the job ends") {
  const ending end = run("shm", {"1:0:10", "1:1:12"}, "1");
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.exit_code == 128 + 9);
  CHECK(count_of(end.error, "it is started anew (1 of 1)") == 1);
}

TEST_CASE("rejoin: without a launcher that restarts ranks it fails and says so") {
  CHECK_NOTHROW(tutti::run_local(2, tutti::test::over("shm"), [](tutti::communicator world) -> tutti::task<> {
    const auto r = co_await tutti::as_result(world.rejoin());
    TUTTI_EXPECT(r.error == tutti::errc::not_supported);
    TUTTI_EXPECT(r.message.find("--on-failure restart") != std::string::npos);
  }));
}
