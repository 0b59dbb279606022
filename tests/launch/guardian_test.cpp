// SPDX-License-Identifier: Apache-2.0
#include "launch/children.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "launched.hpp"
#include "support/skip.hpp"

using namespace tutti::launch;
using testing::launched;
using testing::watched;

namespace {

// Each rank prints its pid and a grandchild's. The grandchild would outlive it.
const char* const with_grandchild = "sleep 1000 & echo pids $$ $!; wait";

std::vector<pid_t> announced_pids(const std::string& output) {
  std::vector<pid_t> pids;
  std::istringstream words(output);
  for (std::string word; words >> word;)
    if (word == "pids") {
      pid_t rank = 0;
      pid_t grandchild = 0;
      words >> rank >> grandchild;
      pids.push_back(rank);
      pids.push_back(grandchild);
    }
  return pids;
}

}  // namespace

TEST_SUITE("launch/guardian") {
  TEST_CASE("a killed launcher leaves no rank, no grandchild and no guardian") {
    launched job({"-n", "3", "sh", "-c", with_grandchild});
    job.wait_for("pids", 3);
    job.wait_for("\n", 3);
    std::vector<pid_t> pids = announced_pids(job.output());
    REQUIRE(pids.size() == 6);
    const std::vector<pid_t> children = testing::children_of(job.pid());
    CHECK(children.size() == 4);  // three ranks and the guardian
    pids.insert(pids.end(), children.begin(), children.end());
    std::vector<watched> all;
    for (const pid_t pid : pids) all.emplace_back(pid);
    job.signal(SIGKILL);
    for (watched& process : all) CHECK(process.dies());
    CHECK(job.finish().exit_code == 128 + SIGKILL);  // at the end of its output: all have closed it
  }

  TEST_CASE("the same if ranks ignore all possible signals") {
    launched job({"-n", "2", "sh", "-c",
                  "trap '' TERM INT HUP QUIT; (sleep 1000; echo alive) & echo pids $$ $!; wait"});
    job.wait_for("pids", 2);
    job.wait_for("\n", 2);
    std::vector<watched> all;
    for (const pid_t pid : announced_pids(job.output())) all.emplace_back(pid);
    REQUIRE(all.size() == 4);
    job.signal(SIGKILL);
    for (watched& process : all) CHECK(process.dies());
    job.finish();
  }

  TEST_CASE("processes that ranks leave behind end with the job") {
    TUTTI_NEEDS_A_KERNEL("give the launcher the processes whose parents have ended");
    launched job({"-n", "2", "sh", "-c", "trap '' TERM; sleep 1000 & echo pids $$ $!; exit 0"});
    const testing::ending end = job.finish();
    CHECK(end.exit_code == 0);
    const std::vector<pid_t> pids = announced_pids(end.output);
    REQUIRE(pids.size() == 4);
    for (const pid_t pid : pids) CHECK(::kill(pid, 0) != 0);  // ended and reaped when tutti-run returns
  }

  TEST_CASE("a job inside a rank dies with the launcher of the outer one") {
    launched job({"-n", "1", testing::launcher_path(), "-n", "2", "sh", "-c", with_grandchild});
    job.wait_for("pids", 2);
    job.wait_for("\n", 2);
    std::vector<watched> all;
    for (const pid_t pid : announced_pids(job.output())) all.emplace_back(pid);
    REQUIRE(all.size() == 4);
    job.signal(SIGKILL);
    for (watched& process : all) CHECK(process.dies());
    job.finish();
  }

  TEST_CASE("a guardian that is killed does not end the job") {
    launched job({"-n", "2", "sh", "-c", "echo pids $$ 0; read line; [ $RANK = 1 ] || echo got $line"});
    job.wait_for("pids", 2);
    job.wait_for("\n", 2);
    const std::vector<pid_t> ranks = announced_pids(job.output());
    for (const pid_t child : testing::children_of(job.pid())) {
      if (child == ranks[0] || child == ranks[2]) continue;
      watched guardian(child);
      REQUIRE(::kill(child, SIGKILL) == 0);
      CHECK(guardian.dies());
    }
    job.write_input("on\n");
    const testing::ending end = job.finish();
    CHECK(end.exit_code == 0);
    CHECK(end.output.ends_with("got on\n"));
  }

  TEST_CASE("forgotten process groups are not killed") {
    const pid_t spared = ::fork();
    REQUIRE(spared >= 0);
    if (spared == 0) {
      ::setpgid(0, 0);
      for (;;) ::pause();
    }
    ::setpgid(spared, spared);
    const pid_t doomed = ::fork();
    REQUIRE(doomed >= 0);
    if (doomed == 0) {
      ::setpgid(0, 0);
      for (;;) ::pause();
    }
    ::setpgid(doomed, doomed);
    watched doomed_watch(doomed);
    {
      const guardian guard;
      guard.watch(spared);
      guard.watch(doomed);
      guard.forget(spared);
    }
    CHECK(doomed_watch.dies());
    CHECK(::kill(spared, SIGKILL) == 0);
    CHECK(::waitpid(spared, nullptr, 0) == spared);
    CHECK(::waitpid(doomed, nullptr, 0) == doomed);
  }
}
