// SPDX-License-Identifier: Apache-2.0
// tutti::spawn: programs that are their own launcher, and the same programs under a launcher.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <tutti/spawn.hpp>

#include "launched.hpp"
#include "support/skip.hpp"

using namespace tutti::launch;
using testing::count_of;
using testing::ending;
using testing::launched;
using testing::watched;

namespace {

const std::string program = TUTTI_SPAWNED_PATH;

ending run(std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
  return launched(std::move(arguments), std::move(variables), -1, program).finish();
}

// Ranks that wait for ever, each with a child process; and the guardian.
struct waiting_job {
  launched job{{"4", "wait"}, {}, -1, program};
  std::vector<watched> all;

  waiting_job() {
    job.wait_for("pids", 4);
    job.wait_for("\n", 4 + 5);
    std::istringstream words(job.output());
    for (std::string word; words >> word;)
      if (pid_t rank = 0, grandchild = 0; word == "pids" && words >> rank >> grandchild) {
        all.emplace_back(rank);
        all.emplace_back(grandchild);
      }
    CHECK(all.size() == 8);
    const std::vector<pid_t> children = testing::children_of(job.pid());
    CHECK(children.size() == 5);  // four ranks and the guardian
    for (const pid_t child : children) all.emplace_back(child);
  }
  void check_none_left() {
    for (watched& process : all) CHECK(process.dies());
  }
};

}  // namespace

TEST_SUITE("launch/spawn") {
  TEST_CASE("arguments, with spaces and empty ones, and the environment reach all ranks") {
    const ending end =
        run({"4", "tell", "two words", "", "it's \"quoted\"\n$HOME", "*"}, {"SPAWNED_VARIABLE=a b"});
    INFO(end.output, end.error);
    CHECK(end.exit_code == 0);
    CHECK(end.error.empty());
    CHECK(count_of(end.output, "before spawn") == 5);  // the launcher and four ranks
    CHECK(end.output.starts_with("before spawn\n"));   // the launcher's own output comes first
    for (const char* rank : {"rank 0 of 4: ", "rank 1 of 4: ", "rank 2 of 4: ", "rank 3 of 4: "})
      CHECK(count_of(end.output, rank + ("[" + program) + "][4][tell][two words][][it's \"quoted\"\n") == 1);
    CHECK(count_of(end.output, "$HOME][*] a b 1\n") == 4);  // including a variable that main() has set
    CHECK(count_of(end.output, "] before spawn\n") == 3);   // prefixed by rank, once a second one writes
  }

  TEST_CASE("one rank") {
    const ending end = run({"1", "tell"});
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, "rank 0 of 1: ") == 1);
  }

  TEST_CASE("options reach all ranks") {
    const ending end = run({"2", "tcp"}, {"TUTTI_TRANSPORTS=tcp"});
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, "of 2: ") == 2);
    const ending other = run({"2", "tcp"}, {"TUTTI_TRANSPORTS=shm"});
    CHECK(other.exit_code == 1);
    CHECK(count_of(other.error, "TUTTI_TRANSPORTS") >= 1);  // they contradict the environment
  }

  TEST_CASE("standard input goes to rank 0") {
    launched job({"2", "input"}, {}, -1, program);
    job.write_input("a line\n");
    const ending end = job.finish();
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, "rank 0 read a line\n") == 1);
    CHECK(count_of(end.output, "rank 1 read nothing\n") == 1);
  }

  TEST_CASE("a rank's exit code is the job's, and the failure is reported") {
    const ending end = run({"4", "exit"});
    CHECK(end.exit_code == 3);
    CHECK(count_of(end.error, "tutti-run: rank 2 failed first: it exited with code 3 (pid ") == 1);
  }

  TEST_CASE("a rank that is killed ends the job") {
    const ending end = run({"4", "kill"});
    CHECK(end.exit_code == 128 + SIGKILL);
    CHECK(count_of(end.error, "rank 2 failed first: it was killed by SIGKILL (signal 9)") == 1);
  }

  TEST_CASE("a killed launcher leaves no rank, no child of ranks and no guardian") {
    waiting_job waiting;
    waiting.job.signal(SIGKILL);
    waiting.check_none_left();
    CHECK(waiting.job.finish().exit_code == 128 + SIGKILL);
  }

  TEST_CASE("Ctrl-C ends all ranks") {
    waiting_job waiting;
    waiting.job.signal(SIGINT);
    const ending end = waiting.job.finish();
    waiting.check_none_left();
    CHECK(end.exit_code == 128 + SIGINT);
    CHECK(count_of(end.error, "tutti-run: the job was stopped by SIGINT\n") == 1);
  }

  TEST_CASE("the executable is removed while it runs") {
    TUTTI_NEEDS_A_KERNEL("name a program whose file is gone");
    const testing::temporary_directory folder;
    const std::string copy = folder.path() + "/program";
    std::filesystem::copy_file(program, copy);
    const ending end = launched({"2", "deleted"}, {}, -1, copy).finish();
    INFO(end.error);
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, "of 2: [" + copy + "][2][deleted]") == 2);
  }

  TEST_CASE("under tutti-run it is a rank, and the launcher's number of ranks counts") {
    const ending same = testing::launch({"-n", "2", program, "2", "tell"});
    CHECK(same.exit_code == 0);
    CHECK(same.error.empty());
    CHECK(count_of(same.output, "before spawn") == 2);
    CHECK(count_of(same.output, "of 2: ") == 2);
    const ending other = testing::launch({"-n", "2", program, "4", "tell"});
    CHECK(other.exit_code == 0);
    CHECK(count_of(other.output, "of 2: ") == 2);
    CHECK(count_of(other.error,
                   "tutti::spawn asks for 4 ranks, but this program was started with WORLD_SIZE=2: the "
                   "starter's number counts\n") == 1);
  }

  TEST_CASE("the variables of other starters count as well") {
    for (const std::vector<std::string>& variables :
         {std::vector<std::string>{"RANK=0", "WORLD_SIZE=1"},
          {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
          {"PMI_RANK=0", "PMI_SIZE=1"},
          {"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}}) {
      const ending end = run({"4", "tell"}, variables);
      INFO(variables[0], end.error);
      CHECK(end.exit_code == 0);
      CHECK(count_of(end.output, "rank 0 of 1: ") == 1);
      CHECK(count_of(end.output, "before spawn") == 1);
      CHECK(count_of(end.error, "the starter's number counts") == 1);
    }
  }

  TEST_CASE("an invalid number of ranks is refused") {
    for (const char* number : {"0", "-1", "4097"}) {
      const ending end = run({number, "tell"});
      CHECK(end.exit_code == 1);
      CHECK(count_of(end.error, std::string("tutti::spawn with ") + number +
                                    " ranks: give a number from 1 to 4096") == 1);
      CHECK(count_of(end.output, "rank") == 0);
    }
  }

  TEST_CASE("a second call in one process is refused, even inside a rank") {
    for (const char* what : {"nested", "twice"}) {
      const ending end = run({"2", what});
      INFO(what, end.output, end.error);
      CHECK(end.exit_code == 1);
      CHECK(count_of(end.error, "tutti::spawn was called before in this process") >= 1);
    }
  }
}
