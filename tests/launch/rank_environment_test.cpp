// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "launched.hpp"

using namespace tutti::launch;
using testing::launch;

namespace {

const std::vector<std::string> several_nodes = {"-n",          "2", "--nnodes", "3",
                                                "--node-rank", "1", "--master", "node0:29500"};

std::vector<std::string> with(std::vector<std::string> words, std::vector<std::string> more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_SUITE("launch/rank_environment") {
  TEST_CASE("every rank gets its place") {
    const testing::ending end =
        launch({"-n", "3", "--tag-output", "never", "sh", "-c",
                "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $NNODES $MASTER_ADDR"});
    CHECK(end.exit_code == 0);
    CHECK(testing::lines_of(end.output) == std::vector<std::string>{"0 3 0 3 0 1 127.0.0.1",
                                                                    "1 3 1 3 0 1 127.0.0.1",
                                                                    "2 3 2 3 0 1 127.0.0.1"});
  }

  TEST_CASE("job id and secret are random, and the same for all ranks") {
    std::set<std::string> seen;
    for (int run = 0; run < 2; ++run) {
      const testing::ending end =
          launch({"-n", "3", "--tag-output", "never", "sh", "-c", "echo $TUTTI_JOB_ID $TUTTI_SECRET"});
      const auto lines = testing::lines_of(end.output);
      REQUIRE(lines.size() == 3);
      CHECK(lines[0] == lines[2]);
      CHECK(lines[0].size() == 16 + 1 + 64);
      CHECK(lines[0].find_first_not_of("0123456789abcdef ") == std::string::npos);
      seen.insert(lines[0].substr(0, 16));
      seen.insert(lines[0].substr(17));
    }
    CHECK(seen.size() == 4);
  }

  TEST_CASE("the variables of the launcher's own place are not passed on") {
    const testing::ending end = launch(
        {"-n", "1", "sh", "-c",
         "env | grep -E '^(OMPI_COMM|PMI_|MPI_LOCAL|TORCHELASTIC|TUTTI_(RESTART|MASTER))' ; true"},
        {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALNRANKS=4",
         "TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_USE_AGENT_STORE=True", "TUTTI_RESTART_COUNT=1"});
    CHECK(testing::lines_of(end.output) == std::vector<std::string>{"TUTTI_RESTART_COUNT=0"});  // its own
  }

  TEST_CASE("a secret set by the user is kept") {
    CHECK(launch({"-n", "1", "sh", "-c", "echo $TUTTI_SECRET"}, {"TUTTI_SECRET=mine"}).output == "mine\n");
  }

  TEST_CASE("a program that a rank starts does not join in the rank's place") {
    const testing::ending end =
        launch({"-n", "2", "--tag-output", "never", TUTTI_SUMS_PATH, "inside"}, {"TUTTI_TIMEOUT=30"});
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    for (const std::string rank : {"0", "1"}) {
      CHECK(end.error.find("inside rank " + rank + " of a job (process ") != std::string::npos);
      CHECK(end.output.find("rank " + rank + ": inherited place failed, alone went on") != std::string::npos);
    }
    CHECK(testing::count_of(end.output, "of 2: right") == 2);
    CHECK(testing::count_of(end.output, "of 1: right") == 2);
  }

  TEST_CASE("other variables are passed, stale ones are not") {
    const testing::ending end =
        launch({"-n", "2", "sh", "-c", "[ $RANK = 1 ] && echo $FLAVOUR $RANK ${TUTTI_STORE_FD-none}; true"},
               {"FLAVOUR=vanilla", "RANK=7", "TUTTI_STORE_FD=44", "WORLD_SIZE=9"});
    CHECK(end.output == "vanilla 1 none\n");
  }

  TEST_CASE("torchrun's names for nodes, and the number of restarts") {
    const testing::ending end = launch(
        {"-n", "1", "sh", "-c",
         "echo $GROUP_RANK $GROUP_WORLD_SIZE $TUTTI_RESTART_COUNT $TUTTI_MAX_RESTARTS ${ROLE_RANK-none}"},
        {"ROLE_RANK=4", "GROUP_RANK=3"});
    CHECK(end.output == "0 1 0 0 none\n");
  }

  TEST_CASE("a secret from a descriptor, which the ranks do not inherit") {
    const testing::temporary_directory folder;
    const std::string file = folder.path() + "/secret";
    std::ofstream(file) << "from a file\n";
    const testing::ending end = launch(
        {"-n", "1", "sh", "-c",
         "exec \"$0\" -n 1 --secret-fd 5 sh -c 'echo $TUTTI_SECRET; [ -e /proc/$$/fd/5 ] || echo gone' 5<$1",
         testing::launcher_path(), file});
    CHECK(end.output == "from a file\ngone\n");
    const testing::ending closed = launch({"-n", "1", "--secret-fd", "77", "true"});
    CHECK(closed.exit_code == 2);
    CHECK(closed.error.find("--secret-fd 77") != std::string::npos);
    std::ofstream(file, std::ios::trunc).flush();
    CHECK(launch({"-n", "1", "sh", "-c", "exec \"$0\" -n 1 --secret-fd 5 true 5<$1", testing::launcher_path(),
                  file})
              .exit_code == 2);
  }

  TEST_CASE("several nodes need a common secret") {
    const testing::ending end = launch(with(several_nodes, {"true"}));
    CHECK(end.exit_code == 2);
    CHECK(end.error.find("TUTTI_SECRET") != std::string::npos);
  }

  TEST_CASE("a wrong command line exits with 2 and the message has the right one") {
    const testing::ending end = launch({"-n", "0", "true"});
    CHECK(end.exit_code == 2);
    CHECK(end.error.find("from 1 to 4096") != std::string::npos);
    CHECK(launch({"--help"}).exit_code == 0);
  }
}
