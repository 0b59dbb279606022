// SPDX-License-Identifier: Apache-2.0
// Ranks and launchers that die: the survivors soon know which, and nothing is left behind.
#include "launch/launched.hpp"
#include "support/contains.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;
using tutti::launch::testing::watched;

namespace {

const std::string transports[] = {"shm", "tcp"};

std::vector<std::string> command(const std::string& drill, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", "3", "--tag-output", "never"});
  options.insert(options.end(), {TUTTI_DRILL_PATH, drill});
  return options;
}

ending run(const std::string& drill, const std::string& transport, std::vector<std::string> options = {}) {
  return launched(command(drill, std::move(options)), {"TUTTI_TRANSPORTS=" + transport}).finish();
}

// The same without a common recorder, as without a launcher.
std::vector<std::string> command_without_recordings(const std::string& drill,
                                                    std::vector<std::string> options = {}) {
  options.insert(options.end(), {"env", "-u", "TUTTI_FLIGHT"});
  return command(drill, std::move(options));
}

// Files in /dev/shm that could be ours; other programs' files come and go.
std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none))
    if (entry.path().filename().string().find("tutti") != std::string::npos)
      names.insert(entry.path().filename());
  return names;
}

// The line in which a survivor reports its error, or an empty string.
std::string heard(const ending& end, int rank) {
  std::istringstream lines(end.output);
  const std::string begin = "rank " + std::to_string(rank) + " heard ";
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(begin, 0) == 0) return line.substr(begin.size());
  return {};
}

// Ranks 0 and 2 end successfully after the error `error` about rank 1. The exit code is rank 1's.
void check_survivors(const std::string& drill, const std::string& error, const std::string& text,
                     int exit_code) {
  for (const std::string& transport : transports) {
    CAPTURE(drill);
    CAPTURE(transport);
    const std::set<std::string> before = shared_memory_files();
    const ending end = run(drill, transport, {"--on-failure", "continue"});
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == exit_code);
    for (const int rank : {0, 2}) {
      const std::string line = heard(end, rank);
      CHECK(line.rfind(error + ": ", 0) == 0);
      CHECK(line.find("rank 1 (host ") != std::string::npos);
      CHECK(line.find(text) != std::string::npos);
    }
    CHECK(shared_memory_files() == before);
  }
}

using tutti::test::contains;

}  // namespace

TEST_CASE("processes: a rank is killed in the middle of an all_reduce") {
  check_survivors("killed_in_all_reduce", "peer_failed", "all_reduce", 128 + SIGKILL);
}
TEST_CASE("processes: a rank is killed while others wait for its message") {
  check_survivors("killed_while_waited_for", "peer_failed", "recv", 128 + SIGKILL);
}
TEST_CASE("processes: a rank without connections is killed") {
  check_survivors("killed_before_any_message", "peer_failed", "recv", 128 + SIGKILL);
  check_survivors("killed_before_any_message_that_is_probed_for", "peer_failed", "probe", 128 + SIGKILL);
}
TEST_CASE("processes: a rank is killed while it sends long messages") {
  check_survivors("killed_while_sending", "peer_failed", "recv", 128 + SIGKILL);
}
TEST_CASE("processes: a rank is killed while it receives long messages") {
  check_survivors("killed_while_receiving", "peer_failed", "send", 128 + SIGKILL);
}
TEST_CASE("processes: a rank of a window is killed") {
  check_survivors("killed_while_its_signal_is_waited_for", "peer_failed", "wait_signal", 128 + SIGKILL);
  check_survivors("killed_while_its_window_is_used", "peer_failed", "fetch_add", 128 + SIGKILL);
}
TEST_CASE("processes: a rank returns early") {
  check_survivors("returns_early", "peer_left", "recv", 0);  // that it has closed world may come first
}
TEST_CASE("processes: a rank returns before it has connected to ranks that receive from any rank") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending end = run("leaves_unmet", transport);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(end.output.empty());
    CHECK(end.error.empty());
  }
}
TEST_CASE("processes: a rank returns before it has connected, and shares no recorder with the others") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending end =
        launched(command_without_recordings("leaves_unmet"), {"TUTTI_TRANSPORTS=" + transport}).finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(end.output.empty());
    CHECK(end.error.empty());
  }
}
TEST_CASE("processes: a rank returns before it has connected, each rank on a host of its own") {
  const std::string master = tutti::launch::testing::free_address();
  std::vector<std::unique_ptr<launched>> nodes;
  for (int node = 0; node < 3; ++node) {
    const std::vector<std::string> words = {"-n",
                                            "1",
                                            "--nnodes",
                                            "3",
                                            "--master",
                                            master,
                                            "--tag-output",
                                            "never",
                                            "--node-rank",
                                            std::to_string(node),
                                            TUTTI_DRILL_PATH,
                                            "leaves_unmet"};
    nodes.push_back(std::make_unique<launched>(
        words, std::vector<std::string>{"TUTTI_SECRET=common", "TUTTI_HOST_ID=host" + std::to_string(node)}));
  }
  for (const auto& node : nodes) {
    const ending end = node->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(end.output.empty());
    CHECK(end.error.empty());
  }
}
TEST_CASE("processes: a rank is killed that has no connections and no common recorder") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending end =
        launched(command_without_recordings("killed_before_any_message", {"--on-failure", "continue"}),
                 {"TUTTI_TRANSPORTS=" + transport})
            .finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 128 + SIGKILL);
    for (const int rank : {0, 2}) CHECK(heard(end, rank).rfind("peer_failed: ", 0) == 0);
  }
}
TEST_CASE("processes: a rank exits with exit code 0 without leaving its world") {
  check_survivors("exits_without_leaving", "peer_failed", "recv", 0);
}
TEST_CASE("processes: a rank throws") { check_survivors("throws", "peer_failed", "failed: boom", 1); }

TEST_CASE("processes: by default tutti-run stops the other ranks and names the first to fail") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending killed = run("killed_while_waited_for", transport);
    CAPTURE(killed.error);
    CHECK(killed.exit_code == 128 + SIGKILL);
    CHECK(contains(killed.error, "tutti-run: rank 1 failed first: it was killed by SIGKILL"));
    const ending thrown = run("throws", transport);
    CAPTURE(thrown.error);
    CHECK(thrown.exit_code == 1);
    CHECK(contains(thrown.error, "error: boom"));
    CHECK(contains(thrown.error, "tutti-run: rank 1 failed first: it exited with code 1"));
  }
}

TEST_CASE("processes: when a launcher is killed, all its ranks end") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const std::set<std::string> before = shared_memory_files();
    launched job(command("wait_for_ever"), {"TUTTI_TRANSPORTS=" + transport});
    job.wait_for("ready", 3);
    job.wait_for("\n", 3);
    std::vector<watched> all;
    std::istringstream words(job.output());
    for (std::string word; words >> word;)
      if (word != "ready") all.emplace_back(std::stoi(word));
    REQUIRE(all.size() == 3);
    for (const pid_t child : tutti::launch::testing::children_of(job.pid())) all.emplace_back(child);
    job.signal(SIGKILL);
    for (watched& process : all) CHECK(process.dies());
    CHECK(job.finish().exit_code == 128 + SIGKILL);
    CHECK(shared_memory_files() == before);
  }
}

TEST_CASE("processes: a signal to tutti-run ends ranks that wait for each other") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    launched job(command("wait_for_ever"), {"TUTTI_TRANSPORTS=" + transport});
    job.wait_for("ready", 3);
    job.signal(SIGTERM);
    const ending end = job.finish();
    CHECK(end.exit_code == 128 + SIGTERM);
    CHECK(count_of(end.output, "ready") == 3);
  }
}

// Under sanitizers so many take longer than a test waits.
TEST_CASE("processes: thousands of collectives wait for a rank that comes late" *
          doctest::skip(tutti::test::instrumented)) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending end = run("floods", transport);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(end.output.empty());
  }
}

TEST_CASE("processes: a rank whose environment chooses another algorithm is named, and why") {
  const struct {
    std::string transport;
    std::string variable;  // of rank 1
    std::string algorithm;
  } cases[] = {
      {"shm", "TUTTI_FLAT_RANKS=2", "shared_memory in two levels"},
      {"tcp", "TUTTI_ALGORITHMS=all_reduce=ring", "ring"},
  };
  for (const auto& [transport, variable, algorithm] : cases) {
    CAPTURE(variable);
    const ending end = launched({"-n", "4", "--tag-output", "never", "sh", "-c",
                                 "if [ $RANK = 1 ]; then export " + variable + "; fi; exec \"$0\" adds_up",
                                 TUTTI_DRILL_PATH},
                                {"TUTTI_TIMEOUT=30", "TUTTI_TRANSPORTS=" + transport})
                           .finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    bool named = false;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string line = heard(end, rank);
      CHECK_FALSE(line.empty());
      // One that was about to connect to a rank that has failed and left may see that first.
      named |= line.starts_with("mismatch: ") && contains(line, "by " + algorithm) &&
               count_of(line, "all_reduce(1 elements of int32, sum) by ") == 2 &&
               contains(line, variable.substr(0, variable.find('=')));
    }
    CHECK(named);
  }
}

TEST_CASE("processes: a variable out of its range ends a rank with an error that names it") {
  const temporary_directory scratch;
  const auto expect_named = [](const std::string& variable, const ending& end) {
    CAPTURE(variable);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "the environment variable " + variable.substr(0, variable.find('=')) + "='"));
  };
  // Without tutti-run, which reads some of them itself.
  for (const std::string variable :
       {"TUTTI_FLIGHT_OPERATIONS=10", "TUTTI_TRACE_MIB=0", "TUTTI_SPIN_US=-1", "TUTTI_SLICE_US=-1",
        "TUTTI_STALL_WARNING_MS=-1", "TUTTI_TCP_CONNECTIONS=9", "TUTTI_CHECKSUMS=2", "TUTTI_TLS=x",
        "TUTTI_REJOIN=2", "TUTTI_RESTART_COUNT=-1", "TUTTI_STORE_FD=x"}) {
    std::vector<std::string> variables{variable, "RANK=0", "WORLD_SIZE=1"};
    if (variable.starts_with("TUTTI_TRACE_MIB"))
      variables.push_back("TUTTI_TRACE=" + scratch.path() + "/trace");
    expect_named(variable, launched({"adds_up"}, std::move(variables), -1, TUTTI_DRILL_PATH).finish());
  }
  const std::string flat = "TUTTI_FLAT_RANKS=1";  // read where several ranks share memory
  expect_named(flat, launched(command("adds_up"), {flat}).finish());
}
