// SPDX-License-Identifier: Apache-2.0
// Jobs whose nodes come and go and whose launchers meet in etcd: they go on when node 0 dies, and when members of etcd
// do.
#include "launch/launched.hpp"
#include "support/etcd.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

using tutti::launch::testing::check_finished;
using tutti::launch::testing::children_of;
using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::temporary_directory;
using tutti::launch::testing::touch;
using words = std::vector<std::string>;

namespace {

std::unique_ptr<launched> start_node(const std::string& store, int ranks, const words& program,
                                     const words& options = {"--join-timeout", "20"},
                                     const std::string& nodes = "1:5") {
  static int host = 0;
  words all = {"-n", std::to_string(ranks), "--tag-output", "never", "--nnodes", nodes};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), program.begin(), program.end());
  return std::make_unique<launched>(all,
                                    words{"TUTTI_SECRET=common", "TUTTI_TIMEOUT=30", "TUTTI_STORE=" + store,
                                          "TUTTI_HOST_ID=takeover" + std::to_string(host++)});
}

// The launcher and what it has started, as when the host crashes and is restarted at once.
void kill_node(const launched& node) {
  std::vector<pid_t> all = children_of(node.pid());
  all.push_back(node.pid());
  for (const pid_t each : all) ::kill(each, SIGKILL);
}

// A job whose launchers meet in an etcd of its own, and whose ranks run until it is told to end.
struct drill {
  explicit drill(int members = 1) : cluster(members) {}
  std::unique_ptr<launched> start(int ranks, const words& options = {"--join-timeout", "20"},
                                  const std::string& nodes = "1:5") const {
    return start_node(store, ranks, program, options, nodes);
  }
  void end() const { touch(done); }
  // A node whose ranks are shells that know nothing of each other: they do `first`, print "ready" and wait for the end.
  std::unique_ptr<launched> start_shells(const std::string& first, const words& options = {},
                                         int ranks = 1) const {
    return start_node(store, ranks,
                      {"bash", "-c", first + "; echo ready; until [ -e $0 ]; do sleep 0.05; done", done},
                      options);
  }

  tutti::test::etcd_cluster cluster;
  std::string store = cluster.url("drill");
  temporary_directory folder;
  std::string done = folder.path() + "/done";
  words program{TUTTI_ELASTIC_DRILL_PATH, done};
};

void check_says(const ending& end, const std::string& text) {
  CHECK_MESSAGE(end.error.find(text) != std::string::npos, end.error);
}

const words patient = {"--grace", "60"};
const std::string takes_its_time = "trap 'echo told' TERM";

}  // namespace

TEST_CASE("takeover: the launcher that coordinates is killed with its ranks, twice, and others come") {
  TUTTI_NEEDS_ETCD();
  drill job;
  auto first = job.start(2);
  first->wait_for("world of 2");
  auto second = job.start(1);
  first->wait_for("world of 3");
  auto third = job.start(2);
  first->wait_for("world of 5");
  kill_node(*first);
  second->wait_for("world of 3");
  CHECK(second->error().find("this launcher, node 1, coordinates the job from here on") != std::string::npos);
  auto fourth = job.start(1);
  second->wait_for("world of 4");
  kill_node(*second);
  third->wait_for("world of 3");
  job.end();
  check_finished(third->finish(), 2);
  check_finished(fourth->finish(), 1);
}

TEST_CASE("takeover: three of five launchers are killed at once, the one that coordinates among them") {
  TUTTI_NEEDS_ETCD();
  drill job;
  std::vector<std::unique_ptr<launched>> nodes;
  for (int i = 0; i < 5; ++i) {
    nodes.push_back(job.start(1));
    nodes.front()->wait_for("world of " + std::to_string(i + 1));
  }
  for (const int i : {3, 1, 0}) kill_node(*nodes[static_cast<std::size_t>(i)]);
  nodes[2]->wait_for("world of 2");
  job.end();
  check_finished(nodes[2]->finish(), 1);
  check_finished(nodes[4]->finish(), 1);
}

TEST_CASE("takeover: a launcher that coordinates and is told to end leaves, and the others go on") {
  TUTTI_NEEDS_ETCD();
  drill job;
  auto first = job.start(1);
  first->wait_for("world of 1");
  auto second = job.start(2);
  first->wait_for("world of 3");
  first->signal(SIGTERM);
  second->wait_for("world of 2");
  const ending drained = first->finish();
  CHECK(drained.exit_code == 128 + SIGTERM);
  check_says(drained, "this node has left the job: it was stopped by SIGTERM; the others go on");
  auto third = job.start(1);
  second->wait_for("world of 3");
  job.end();
  check_finished(second->finish(), 2);
  check_finished(third->finish(), 1);
}

TEST_CASE("takeover: a launcher whose ranks still end does not take over") {
  TUTTI_NEEDS_ETCD();
  drill job;
  auto first = job.start_shells(":", patient);
  first->wait_for("ready");
  auto second = job.start_shells(takes_its_time);
  second->wait_for("ready");
  auto third = job.start_shells(":");
  third->wait_for("ready");
  second->signal(SIGTERM);
  second->wait_for("told");
  first->signal(SIGTERM);
  CHECK(first->finish().exit_code == 128 + SIGTERM);
  third->wait_for_error("this launcher, node 2, coordinates");
  job.end();
  CHECK(third->finish().exit_code == 0);
  const ending drained = second->finish();
  CHECK(drained.exit_code == 128 + SIGTERM);
  check_says(drained, "this node has left the job: it was stopped by SIGTERM");
}

TEST_CASE("takeover: a rank of the node that coordinates fails for good, and then one of the next") {
  TUTTI_NEEDS_ETCD();
  drill job;
  const std::string one_fails =
      "if [ $LOCAL_RANK = 0 ]; then read x < ${0%done}fail$NODE_RANK; exit 3; fi; " + takes_its_time;
  const std::string fail[] = {job.folder.fifo("fail0"), job.folder.fifo("fail1")};
  auto first = job.start_shells(one_fails, {"--grace", "60", "--max-restarts", "0"}, 2);
  first->wait_for("ready");
  auto second = job.start_shells(one_fails, {}, 2);
  second->wait_for("ready");
  auto third = job.start_shells(":");
  third->wait_for("ready");
  // Those that end do not take over, and their failures are of no account then.
  touch(fail[1]);
  second->wait_for("told");
  touch(fail[0]);
  first->wait_for("told");
  first->wait_for_error("node 0 leaves: rank 0 exited with code 3");
  kill_node(*first);
  third->wait_for_error("this launcher, node 2, coordinates");
  job.end();
  CHECK(third->finish().exit_code == 0);
  const ending left = second->finish();
  CHECK(left.exit_code == 3);
  check_says(left, "this node has left the job: rank 2 exited with code 3");
}

TEST_CASE("takeover: a launcher that is told to end while it takes over leaves at once") {
  TUTTI_NEEDS_ETCD();
  drill job;
  const words quick = {"--node-timeout", "4"};
  auto first = job.start_shells(":", quick);
  first->wait_for("ready");
  auto second = job.start_shells(":", quick);
  second->wait_for("ready");
  auto third = job.start_shells(":", quick);
  third->wait_for("ready");
  auto silent = job.start_shells(":", quick);
  silent->wait_for("ready");
  silent->pause();  // it is waited for
  kill_node(*first);
  second->wait_for_error("this launcher, node 1, coordinates");
  second->signal(SIGTERM);
  const ending told = second->finish();
  CHECK(told.exit_code == 128 + SIGTERM);
  check_says(told, "this node has left the job: it was stopped by SIGTERM");
  third->wait_for_error("this launcher, node 2, coordinates");
  job.cluster.process(0).stop();
  third->signal(SIGTERM);
  CHECK(third->finish().exit_code == 128 + SIGTERM);
}

TEST_CASE("takeover: a launcher that is told to end before there are enough nodes leaves the others") {
  TUTTI_NEEDS_ETCD();
  drill job;
  auto first = job.start(1, {}, "3:5");
  first->wait_until_it_takes_signals();
  first->ask(SIGQUIT, "rank 0 has not joined");  // it coordinates
  auto second = job.start(1, {}, "3:5");
  first->ask(SIGQUIT, "ranks 0, 0");  // those of two nodes, which have no numbers yet
  first->signal(SIGTERM);
  CHECK(first->finish().exit_code == 128 + SIGTERM);
  auto third = job.start(1, {}, "3:5"), fourth = job.start(1, {}, "3:5");
  while (count_of(second->output() + third->output() + fourth->output(), "world of 3") == 0) {
    for (const auto* each : {&second, &third, &fourth}) {
      REQUIRE((*each)->error().find("the job") == std::string::npos);
      (*each)->read_for(std::chrono::milliseconds(50));
    }
  }
  job.end();
  for (const auto* each : {&second, &third, &fourth}) check_finished((*each)->finish(), 1);
}

TEST_CASE("takeover: --timeout of a node") {
  TUTTI_NEEDS_ETCD();
  drill job;
  const std::string why = "this node has left the job: it has run longer than its --timeout";
  auto first = job.start_shells(":");
  first->wait_for("ready");
  ending end = job.start_shells(":", {"--timeout", "1"})->finish();
  CHECK(end.exit_code == 124);
  check_says(end, why);
  job.end();
  CHECK(first->finish().exit_code == 0);
  const std::string nowhere = tutti::launch::testing::free_address();
  end = start_node("etcd://" + nowhere + "/drill", 1, {"true"}, {"--timeout", "0.2"})->finish();
  CHECK(end.exit_code == 124);
  check_says(end, why);
}

TEST_CASE("takeover: the name of the first member of etcd does not resolve") {
  TUTTI_NEEDS_ETCD();
  tutti::test::etcd_cluster cluster(1);
  const ending end = start_node("etcd://no..host," + cluster.address(0) + "/drill", 1, {"true"})->finish();
  CHECK_MESSAGE(end.exit_code == 0, end.error);
}

TEST_CASE("takeover: the first launcher is killed before there were enough nodes") {
  TUTTI_NEEDS_ETCD();
  drill job;
  const words quick = {"--node-timeout", "2"};
  auto first = job.start(1, quick, "2:4");
  first->wait_until_it_takes_signals();
  auto second = job.start(1, quick, "2:4");
  kill_node(*first);
  auto third = job.start(1, quick, "2:4");
  while (count_of(second->output() + third->output(), "world of 2") == 0) {
    REQUIRE(second->error().find("cannot") == std::string::npos);
    second->read_for(std::chrono::milliseconds(50));
    third->read_for(std::chrono::milliseconds(50));
  }
  job.end();
  check_finished(second->finish(), 1);
  check_finished(third->finish(), 1);
}

TEST_CASE("takeover: a job in the place of one whose nodes have all been killed is another one") {
  TUTTI_NEEDS_ETCD();
  drill job;
  for (int run = 0; run < 2; ++run) {
    auto first = job.start(1, {"--node-timeout", "2"});
    first->wait_for("world of 1");
    auto second = job.start(2, {"--node-timeout", "2"});
    first->wait_for("world of 3");
    if (run == 1) {
      job.end();
      check_finished(first->finish(), 1);
      check_finished(second->finish(), 2);
      break;
    }
    kill_node(*second);
    kill_node(*first);
  }
}

TEST_CASE("takeover: each member of etcd dies once, its leader among them, and so does node 0") {
  TUTTI_NEEDS_ETCD();
  drill job(3);
  auto first = job.start(1);
  first->wait_for("world of 1");
  job.cluster.kill(0);
  auto second = job.start(1);
  first->wait_for("world of 2");
  job.cluster.start(0);
  job.cluster.kill(1);
  auto third = job.start(2);
  first->wait_for("world of 4");
  job.cluster.start(1);
  job.cluster.kill(2);
  kill_node(*first);
  second->wait_for("world of 3");
  job.end();
  check_finished(second->finish(), 1);
  check_finished(third->finish(), 2);
}

TEST_CASE(
    "takeover: while etcd does not answer ranks go on, and a launcher that is killed then is replaced "
    "later") {
  TUTTI_NEEDS_ETCD();
  drill job;
  auto first = job.start(1);
  first->wait_for("world of 1");
  auto second = job.start(2);
  first->wait_for("world of 3");
  job.cluster.process(0).stop();
  kill_node(*first);
  second->read_for(std::chrono::seconds(3), "coordinates");  // no launcher can
  CHECK(second->error().find("coordinates") == std::string::npos);
  job.cluster.process(0).signal(SIGCONT);
  second->wait_for("world of 2");
  job.cluster.process(0).stop();
  job.end();
  check_finished(second->finish(), 2);
}

TEST_CASE("takeover: no etcd, a text that names none, and node 0 lost without one") {
  const words program = {"true"};
  const std::string nowhere = tutti::launch::testing::free_address();
  ending e = start_node("etcd://" + nowhere + "/drill", 1, program, {"--join-timeout", "1"})->finish();
  CHECK(e.exit_code == 1);
  CHECK_MESSAGE(e.error.find("cannot join the job in etcd") != std::string::npos, e.error);
  CHECK(e.error.find("no etcd has answered within ") != std::string::npos);
  e = start_node("etcd://" + nowhere, 1, program)->finish();
  CHECK(e.exit_code == 2);
  CHECK_MESSAGE(e.error.find("write etcd://host:port[,host:port...]/JOB") != std::string::npos, e.error);
}

#ifdef TUTTI_ELASTIC_EXAMPLE_PATH
TEST_CASE("takeover: a training goes on when node 0 is killed, and learns as much as an undisturbed one") {
  TUTTI_NEEDS_ETCD();
  const auto accuracy_of = [](const std::string& output) {
    const std::size_t at = output.find("done on ");
    REQUIRE(at != std::string::npos);
    CHECK(output.find("replicas identical: yes") != std::string::npos);
    return std::stod(output.substr(output.find(": ", at) + 2));
  };
  tutti::test::etcd_cluster cluster(1);
  launched alone({"-n", "1", TUTTI_ELASTIC_EXAMPLE_PATH});
  const words program = {TUTTI_ELASTIC_EXAMPLE_PATH, "20"};
  const std::string store = cluster.url("training");
  auto zero = start_node(store, 2, program);
  zero->wait_for("on 2 ranks");
  auto one = start_node(store, 1, program);
  zero->wait_for("on 3 ranks");
  auto two = start_node(store, 1, program);
  zero->wait_for("on 4 ranks");
  kill_node(*zero);
  one->wait_for("on 2 ranks");
  one->read_for(std::chrono::seconds(60));  // it trains without output
  const ending end = one->finish();
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  CHECK(end.output.find("done on 2 ranks") != std::string::npos);
  CHECK(std::abs(accuracy_of(end.output) - accuracy_of(alone.finish().output)) <= 0.5);
  CHECK(two->finish().exit_code == 0);
}
#endif
