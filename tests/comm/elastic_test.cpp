// SPDX-License-Identifier: Apache-2.0
// Worlds that grow and shrink: tutti-run --nnodes MIN:MAX, newcomers() and rejoin(), with real processes.
#include "launch/launched.hpp"
#include "launch/two_networks.hpp"
#include "support/certificates.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using tutti::launch::testing::check_finished;
using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;
using tutti::launch::testing::touch;
using words = std::vector<std::string>;

namespace {

struct elastic_job {
  explicit elastic_job(std::string min_and_max, words options = {})
      : nodes(std::move(min_and_max)), more(std::move(options)) {}

  std::string nodes;
  words more;  // options
  words variables = {"TUTTI_SECRET=common"};
  std::string join_timeout = "20";
  temporary_directory folder;
  std::string master = tutti::launch::testing::free_address();
  std::string done = folder.path() + "/done", killing = folder.path() + "/kill";

  std::unique_ptr<launched> start(int ranks, bool first = false) const {
    words all = {"-n",    std::to_string(ranks), "--nnodes",   nodes,      "--tag-output",
                 "never", "--join-timeout",      join_timeout, "--master", master};
    if (first) all.insert(all.end(), {"--node-rank", "0"});
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {TUTTI_ELASTIC_DRILL_PATH, done, killing});
    static int host = 0;
    words set = variables;
    set.insert(set.end(), {"TUTTI_TIMEOUT=30", "TUTTI_HOST_ID=elastic" + std::to_string(host++)});
    return std::make_unique<launched>(all, set);
  }
};

}  // namespace

TEST_CASE("elastic: nodes join, are killed, leave in order, and join again") {
  const elastic_job job("1:4");
  auto first = job.start(2, true);
  first->wait_for("world of 2");
  auto second = job.start(1);
  first->wait_for("world of 3");
  auto third = job.start(2);
  first->wait_for("world of 5");
  second->signal(SIGKILL);  // and its rank dies with it
  first->wait_for("world of 4");
  third->signal(SIGTERM);  // drains the node
  first->wait_for("world of 2", 2);
  const ending drained = third->finish();
  CHECK(drained.exit_code == 128 + SIGTERM);
  CHECK(drained.error.find("this node has left the job") != std::string::npos);
  auto again = job.start(3);
  first->wait_for("world of 5", 2);
  touch(job.done);
  const ending end = first->finish();
  check_finished(end, 2);
  CHECK(end.error.find("node 1 (rank 2 on ") != std::string::npos);
  CHECK(end.error.find("was lost") != std::string::npos);
  CHECK(end.error.find("leaves: it was stopped by SIGTERM; the others go on") != std::string::npos);
  check_finished(again->finish(), 3);
}

TEST_CASE("elastic: the job begins with MIN nodes, and continues when there are as many again") {
  const elastic_job job("2:3");
  auto first = job.start(1, true);
  auto second = job.start(1);
  first->wait_for("world of 2");
  second->signal(SIGKILL);
  first->wait_for_error("was lost");
  auto third = job.start(2);
  first->wait_for("world of 3");
  touch(job.done);
  check_finished(first->finish(), 1);
  check_finished(third->finish(), 2);
}

TEST_CASE("elastic: a rank that dies is restarted and admitted at the end of the order") {
  const elastic_job job("1:2");
  auto first = job.start(3, true);
  first->wait_for("world of 3");
  touch(job.killing);
  first->wait_for("world of 3", 2);
  touch(job.done);
  const ending end = first->finish();
  check_finished(end, 3);
  CHECK(end.error.find("it is started anew (1 of 3)") != std::string::npos);
}

TEST_CASE("elastic: a node whose rank has no restarts left leaves with its exit code") {
  const elastic_job job("1:2", {"--max-restarts", "0"});
  auto first = job.start(1, true);
  first->wait_for("world of 1");
  auto second = job.start(1);
  first->wait_for("world of 2");
  touch(job.killing);
  first->wait_for("world of 1", 2);
  CHECK(second->finish().exit_code == 128 + SIGKILL);
  touch(job.done);
  check_finished(first->finish(), 1);
}

TEST_CASE("elastic: a node beyond MAX, without the secret or with the number of another is refused") {
  elastic_job job("1:2");
  auto first = job.start(1, true);
  first->wait_for("world of 1");
  job.variables = {"TUTTI_SECRET=another"};
  const ending outsider = job.start(1)->finish();
  CHECK(outsider.exit_code == 1);
  CHECK(outsider.error.find("TUTTI_SECRET") != std::string::npos);
  first->wait_for_error("could not prove that it knows the job's secret");
  job.variables = {"TUTTI_SECRET=common"};
  job.more = {"--node-rank", "1"};
  auto second = job.start(1);
  first->wait_for("world of 2");
  const ending same = job.start(1)->finish();
  CHECK(same.exit_code == 2);
  CHECK(same.error.find("give each node a --node-rank of its own") != std::string::npos);
  job.more = {};
  const ending third = job.start(1)->finish();
  CHECK(third.exit_code == 2);
  CHECK(third.error.find("--nnodes allows 2 nodes, and as many are there") != std::string::npos);
  touch(job.done);
  check_finished(first->finish(), 1);
  check_finished(second->finish(), 1);
}

#ifdef TUTTI_HAVE_TLS
TEST_CASE("elastic: over TLS nodes join and are killed, and one without it is refused") {
  TUTTI_NEEDS_TLS();
  elastic_job job("1:3");
  job.variables = {"TUTTI_SECRET=common", "TUTTI_TLS=1"};
  auto first = job.start(1, true);
  auto second = job.start(1);
  first->wait_for("world of 2");
  second->signal(SIGKILL);
  first->wait_for("world of 1");
  auto third = job.start(2);
  first->wait_for("world of 3");
  job.variables = {"TUTTI_SECRET=common"};
  const ending plain = job.start(1)->finish();
  CHECK(plain.exit_code == 1);
  CHECK(plain.error.find("uses TLS, and this process does not use it") != std::string::npos);
  first->wait_for_error("does not use TLS, and this process uses it");
  touch(job.done);
  check_finished(first->finish(), 1);
  check_finished(third->finish(), 2);
}

TEST_CASE("elastic: with certificates nodes join and are killed, and one of another authority is refused") {
  TUTTI_NEEDS_TLS();
  elastic_job job("1:3");
  const std::string directory = job.folder.path();
  const tutti::test::authority ours(directory, "ours"), others(directory, "others");
  const auto certified = [&](const tutti::test::authority::issued& files) {
    return words{"TUTTI_SECRET=common", "TUTTI_TLS=1", "TUTTI_TLS_CERTIFICATE=" + files.certificate,
                 "TUTTI_TLS_KEY=" + files.key, "TUTTI_TLS_AUTHORITY=" + ours.file()};
  };
  job.variables = certified(ours.issue("good"));
  auto first = job.start(1, true);
  auto second = job.start(1);
  first->wait_for("world of 2");
  job.variables = certified(others.issue("foreign"));
  const ending foreign = job.start(1)->finish();
  CHECK(foreign.exit_code == 1);
  CHECK(foreign.error.find("TUTTI_TLS_AUTHORITY") != std::string::npos);
  first->wait_for_error("its certificate is not accepted here");
  second->signal(SIGKILL);
  first->wait_for("world of 1");
  job.variables = certified(ours.issue("later"));
  auto third = job.start(2);
  first->wait_for("world of 3");
  touch(job.done);
  check_finished(first->finish(), 1);
  check_finished(third->finish(), 2);
}
#endif

TEST_CASE("elastic: fewer nodes than MIN are an error that says so") {
  elastic_job job("3:4");
  job.join_timeout = "1";
  auto first = job.start(1, true);
  auto second = job.start(1);
  const ending end = first->finish();
  CHECK(end.exit_code == 1);
  CHECK(end.error.find("of at least 3 nodes came to " + job.master + " within 1 s (--join-timeout)") !=
        std::string::npos);
  CHECK(second->finish().exit_code == 1);
}

TEST_CASE("elastic: when a cable is cut one of two nodes goes on; with --quorum majority neither") {
  for (const std::string quorum : {"none", "majority"}) {
    CAPTURE(quorum);
    std::string why_not;
    const auto networks = tutti::launch::testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    const temporary_directory folder;
    const std::string done = folder.path() + "/done", master = networks->address(0) + ":29500";
    const auto node = [&](int host, words options) {
      words all = {"-n", "1",        "--nnodes", "1:2",      "--tag-output", "never", "--node-timeout",
                   "1",  "--quorum", quorum,     "--master", master};
      all.insert(all.end(), options.begin(), options.end());
      all.insert(all.end(), {TUTTI_ELASTIC_DRILL_PATH, done});
      return std::make_unique<launched>(all, words{"TUTTI_SECRET=common", "TUTTI_TIMEOUT=30"},
                                        networks->network(host));
    };
    auto first = node(0, {"--node-rank", "0"});
    first->wait_for("world of 1");
    auto second = node(1, {});
    first->wait_for("world of 2");
    networks->cut();
    const ending cut_off = second->finish();
    CHECK(cut_off.exit_code != 0);
    CHECK(cut_off.error.find("node 0 at " + master + " was lost") != std::string::npos);
    if (quorum == "none") {
      first->wait_for("world of 1", 2);
      touch(done);
      check_finished(first->finish(), 1);
      continue;
    }
    const ending left = first->finish();
    CAPTURE(left.error);
    CAPTURE(left.output);
    CHECK(left.exit_code == 1);
    CHECK(left.error.find("the job was stopped: no quorum: of the last world 1 rank is left here, and 1 may "
                          "still run on nodes that are out of reach") != std::string::npos);
    CHECK(left.output.find("finished") == std::string::npos);
  }
}

TEST_CASE("elastic: with --quorum majority half of the nodes go on when a launcher is known to be dead") {
  const elastic_job job("1:2", {"--quorum", "majority"});
  auto first = job.start(1, true);
  first->wait_for("world of 1");
  auto second = job.start(1);
  first->wait_for("world of 2");
  second->signal(SIGKILL);
  first->wait_for("world of 1", 2);
  touch(job.done);
  check_finished(first->finish(), 1);
}

#ifdef TUTTI_ELASTIC_EXAMPLE_PATH
TEST_CASE("elastic: 1, 3, 2 and 4 nodes learn as much as an undisturbed node") {
  const auto accuracy_of = [](const std::string& output) {
    const std::size_t at = output.find("done on ");
    REQUIRE(at != std::string::npos);
    CHECK(output.find("replicas identical: yes") != std::string::npos);
    return std::stod(output.substr(output.find(": ", at) + 2));
  };
  launched alone({"-n", "1", TUTTI_ELASTIC_EXAMPLE_PATH});
  const std::string master = tutti::launch::testing::free_address();
  const auto start = [&](words first) {
    words all = {"-n", "1",        "--nnodes", "1:4", "--tag-output", "never", "--join-timeout",
                 "20", "--master", master};
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), {TUTTI_ELASTIC_EXAMPLE_PATH, "50"});
    static int host = 0;
    return std::make_unique<launched>(
        all, words{"TUTTI_SECRET=common", "TUTTI_HOST_ID=" + std::to_string(host++)});
  };
  auto zero = start({"--node-rank", "0"});
  zero->wait_for("on 1 ranks");
  auto one = start({}), two = start({});
  zero->wait_for("on 3 ranks");
  const int twos = count_of(zero->output(), "on 2 ranks");  // if one joined before the other
  one->signal(SIGKILL);
  zero->wait_for("on 2 ranks", twos + 1);
  auto three = start({}), four = start({});
  zero->wait_for("on 4 ranks");
  zero->read_for(std::chrono::seconds(60));  // it trains without output
  const ending end = zero->finish();
  CAPTURE(end.output);
  CHECK(end.exit_code == 0);
  CHECK(end.output.find("done on 4 ranks") != std::string::npos);
  CHECK(std::abs(accuracy_of(end.output) - accuracy_of(alone.finish().output)) <= 0.5);
  for (const auto& other : {&two, &three, &four}) CHECK((*other)->finish().exit_code == 0);
}
#endif

TEST_CASE("elastic: one node, without an address for others") {
  const temporary_directory folder;
  const std::string done = folder.path() + "/done";
  touch(done);
  check_finished(
      launched({"-n", "2", "--nnodes", "1:4", "--tag-output", "never", TUTTI_ELASTIC_DRILL_PATH, done})
          .finish(),
      2);
}

TEST_CASE("elastic: a fixed world has no newcomers") {
  CHECK_NOTHROW(tutti::run_local(2, tutti::test::over("shm"), [](tutti::communicator world) -> tutti::task<> {
    TUTTI_EXPECT(tutti::newcomers(world) == 0);
    co_return;
  }));
  CHECK_THROWS_AS(tutti::newcomers(tutti::communicator()), tutti::error);
}
