// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that are stopped, compute, read late, are slow or unresponsive. Ranks that wait for them
// soon name them, and only a dead rank counts as dead.
#include "launch/launched.hpp"
#include "launch/two_networks.hpp"
#include "support/contains.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
using tutti::launch::testing::two_networks;
using words = std::vector<std::string>;

namespace {

const std::string transports[] = {"shm", "tcp"};

using tutti::test::contains;

// The number after `word`, or a negative one.
double number_after(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + word.size(), nullptr);
}

words command(int ranks, const std::string& drill, words options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks), "--tag-output", "never"});
  options.insert(options.end(), {TUTTI_WATCH_DRILL_PATH, drill});
  return options;
}

// Runs one job for each transport at once, because jobs mostly wait.
std::vector<std::unique_ptr<launched>> over_each_transport(int ranks, const std::string& drill,
                                                           words variables = {}, const words& options = {}) {
  std::vector<std::unique_ptr<launched>> jobs;
  variables.emplace_back();
  for (const std::string& transport : transports) {
    variables.back() = "TUTTI_TRANSPORTS=" + transport;
    jobs.push_back(std::make_unique<launched>(command(ranks, drill, options), variables));
  }
  return jobs;
}

// One rank on each of two networks, which are connected only by the cable.
struct two_hosts {
  two_hosts(const two_networks& networks, const std::string& drill, words variables, int ranks = 1)
      : first(arguments(0, networks, drill, ranks), with_secret(variables), networks.network(0)),
        second(arguments(1, networks, drill, ranks), with_secret(variables), networks.network(1)) {}
  static words arguments(int node, const two_networks& networks, const std::string& drill, int ranks) {
    return {"--nnodes", "2", "--node-rank", std::to_string(node), "--master", networks.address(0) + ":29500",
            "--join-timeout", "20",
            // The ranks must detect it, not the launchers.
            "--node-timeout", "60", "--tag-output", "never", "--on-failure", "continue", "-n",
            std::to_string(ranks), TUTTI_WATCH_DRILL_PATH, drill};
  }
  static words with_secret(words variables) {
    variables.push_back("TUTTI_SECRET=s");
    return variables;
  }
  launched first, second;
};

}  // namespace

TEST_CASE("watch: a stopped rank is suspected within a second, and continues without loss") {
  for (const auto& job : over_each_transport(3, "stops")) {
    const ending end = job->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    const double after = number_after(end.output, "suspected after ");
    MESSAGE("a stopped rank was suspected after " << after << " s");
    CHECK(after > 0);
    CHECK(after <= 10);
    CHECK(contains(end.output, "it is back\n"));
    CHECK(contains(end.output, "sum right\n"));
    CHECK(contains(end.output, "suspects 0\n"));
    CHECK(contains(end.error, "tutti[0] warning: waiting for rank 1 (host "));
    CHECK(contains(end.error, "stopped (by SIGSTOP or a debugger) for "));
    CHECK(count_of(end.error, "goes on, after ") >= 1);
  }
}

TEST_CASE("watch: a stopped rank completes what all have reached, although one has died since") {
  const std::string anywhere[] = {"barrier.dissemination", "all_reduce.recursive_doubling",
                                  "broadcast.binomial",    "reduce.binomial",
                                  "gather.linear",         "scatter.linear"};
  const std::string shared[] = {"barrier", "all_reduce", "broadcast", "reduce", "all_gather"};
  std::vector<std::unique_ptr<launched>> jobs;
  const auto start = [&jobs](const std::string& what, const std::string& transport) {
    jobs.push_back(std::make_unique<launched>(command(3, "completes:" + what, {"--on-failure", "continue"}),
                                              words{"TUTTI_TRANSPORTS=" + transport, "TUTTI_TIMEOUT=20"}));
  };
  const auto finish = [&jobs] {
    for (const auto& job : jobs) {
      const ending end = job->finish();
      CAPTURE(end.output);
      CAPTURE(end.error);
      CHECK(!contains(end.output, "WRONG"));
      for (const std::string rank : {"rank 0", "rank 1"}) {
        CHECK(contains(end.output, rank + " reached it and completed\n"));
        CHECK(contains(end.output, rank + " called the next and peer_failed: barrier"));
      }
      CHECK(count_of(end.output, "rank 2 (host ") >= 2);
    }
    jobs.clear();
  };
  for (const std::string& what : anywhere) {
    for (const std::string& transport : transports) start(what, transport);
    finish();
  }
  for (const std::string& what : shared) start(what + ".shared_memory", "shm");
  finish();
}

// Kills the rank that has stopped itself and printed its process before, so that the job ends.
static ending finish_without_stopped(launched& job) {
  const auto stopped = static_cast<pid_t>(number_after(job.output(), "pid "));
  REQUIRE(stopped > 0);
  ::kill(stopped, SIGKILL);
  return job.finish();
}

TEST_CASE("watch: a rank that stays stopped counts as dead after the grace period") {
  auto jobs =
      over_each_transport(3, "stays_stopped", {"TUTTI_SUSPECT_GRACE=1.5"}, {"--on-failure", "continue"});
  // Each rank on a simulated host of its own.
  jobs.push_back(std::make_unique<launched>(command(3, "stays_stopped", {"--on-failure", "continue"}),
                                            words{"TUTTI_SUSPECT_GRACE=1.5", "TUTTI_HOST_ID=a,b,c"}));
  for (const auto& job : jobs) {
    job->wait_for("heard after", 2);
    job->wait_for("\n", 3);
    const ending end = finish_without_stopped(*job);
    CAPTURE(end.output);
    CAPTURE(end.error);
    for (const int rank : {0, 2}) {
      const std::string begin = "rank " + std::to_string(rank) + " heard after ";
      const double after = number_after(end.output, begin);
      CHECK(after >= 1.4);
      CHECK(after <= 20);
    }
    CHECK(count_of(end.output, "peer_failed: ") == 2);
    CHECK(count_of(end.output, "rank 1 (host ") >= 2);
    CHECK(contains(end.output, "it has been stopped for 1."));
  }
}

TEST_CASE("watch: a rank that dies is noticed, although a process that it has forked has its connections") {
  auto jobs = over_each_transport(2, "dies_after_fork", {}, {"--on-failure", "continue"});
  for (auto& of_any : over_each_transport(3, "dies_after_fork", {}, {"--on-failure", "continue"}))
    jobs.push_back(std::move(of_any));
  for (const auto& job : jobs) {
    const ending end = job->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(contains(end.output, "peer_failed: "));
    CHECK(contains(end.output, "one that it has forked still has its connections"));
    const double after = number_after(end.output, "heard after ");
    CHECK(after >= 0);
    CHECK(after <= 20);
  }
}

TEST_CASE("watch: shrink does not wait another grace period for a stopped rank that others have given up") {
  constexpr double grace = 4;
  for (const auto& job :
       over_each_transport(4, "shrinks", {"TUTTI_SUSPECT_GRACE=4"}, {"--on-failure", "continue"})) {
    job->wait_for(" is one of 3 after", 3);
    const ending end = finish_without_stopped(*job);
    CAPTURE(end.output);
    CAPTURE(end.error);
    for (const std::string rank : {"rank 1", "rank 2", "rank 3"}) {
      const double after = number_after(end.output, rank + " is one of 3 after ");
      CHECK(after >= 0);
      CHECK(after < grace);
    }
  }
}

TEST_CASE("watch: a stopped rank of another host counts as dead as well, because its launcher reports it") {
  std::string why_not;
  const auto networks = two_networks::make(why_not);
  if (!networks) TUTTI_SKIP(why_not);
  two_hosts hosts(*networks, "stays_stopped", {"TUTTI_SUSPECT_GRACE=1.5", "TUTTI_HOST_ID=a,b"});
  hosts.first.wait_for("heard after");
  hosts.first.wait_for("\n");
  hosts.second.wait_for("pid ");
  hosts.second.wait_for("\n");
  const auto stopped = static_cast<pid_t>(number_after(hosts.second.output(), "pid "));
  REQUIRE(stopped > 0);
  ::kill(stopped, SIGKILL);
  const ending end = hosts.first.finish();
  CAPTURE(end.output);
  CAPTURE(end.error);
  const double after = number_after(end.output, "heard after ");
  CHECK(after >= 1.4);
  CHECK(after <= 20);
  CHECK(contains(end.output, "peer_failed: "));
  CHECK(contains(end.output, "it has been stopped for "));
  CHECK(contains(end.error, "stopped (by SIGSTOP or a debugger) for "));
  hosts.second.finish();
}

TEST_CASE("watch: the same after ranks were renumbered, whose launcher keeps its numbers") {
  std::string why_not;
  const auto networks = two_networks::make(why_not);
  if (!networks) TUTTI_SKIP(why_not);
  const auto node = [&](int number, const std::string& ranks) {
    return std::make_unique<launched>(
        words{"--nnodes", "2:2", "--node-rank", std::to_string(number), "--master",
              networks->address(0) + ":29500", "--join-timeout", "20", "--node-timeout", "60", "--tag-output",
              "never", "--on-failure", "continue", "-n", ranks, TUTTI_WATCH_DRILL_PATH, "renumbered"},
        words{"TUTTI_SUSPECT_GRACE=1.5", "TUTTI_SECRET=s"}, networks->network(number));
  };
  const auto first = node(0, "2"), second = node(1, "1");
  first->wait_for("heard after");
  first->wait_for("\n");
  second->wait_for("pid ");
  second->wait_for("\n");
  const auto stopped = static_cast<pid_t>(number_after(second->output(), "pid "));
  REQUIRE(stopped > 0);
  ::kill(stopped, SIGKILL);
  const ending end = first->finish();
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(contains(end.output, "rank 0 heard after "));
  CHECK(contains(end.output, "peer_failed: "));
  CHECK(contains(end.output, "it has been stopped for "));
  second->finish();
}

TEST_CASE("watch: a rank of another host that computes, or continues in time, does not count as dead") {
  TUTTI_NEEDS_A_KERNEL("say what the kernel knows of a connection");
  std::string why_not;
  const auto one = two_networks::make(why_not), other = two_networks::make(why_not);
  if (!one || !other) TUTTI_SKIP(why_not);
  two_hosts computing(*one, "computes", {"TUTTI_SUSPECT_GRACE=0.2", "TUTTI_HOST_ID=a,b"});
  two_hosts stopping(*other, "stops", {"TUTTI_SUSPECT_GRACE=20", "TUTTI_HOST_ID=a,b"});
  for (two_hosts* hosts : {&computing, &stopping}) {
    const ending end = hosts->first.finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(hosts->second.finish().exit_code == 0);
    CHECK(contains(end.output, "suspects 0"));
    CHECK(contains(end.error, hosts == &stopping
                                  ? "stopped (by SIGSTOP or a debugger) for "
                                  : "is stopped, or its host or the network between has failed"));
  }
}

TEST_CASE("watch: a rank that computes on its loop is named and waited for") {
  TUTTI_NEEDS_A_KERNEL("say what the kernel knows of a connection");
  for (const auto& job : over_each_transport(2, "computes", {"TUTTI_SUSPECT_GRACE=0.2"})) {
    const ending end = job->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    const double after = number_after(end.output, "rank 0 suspected after ");
    MESSAGE("a rank that computes was suspected after " << after << " s");
    CHECK(after > 0);
    CHECK(after <= 10);
    CHECK(contains(end.output, "rank 0 goes on after "));
    CHECK(contains(end.output, "suspects 0"));
    CHECK(contains(end.error, "its loop has not "));
  }
}

TEST_CASE("watch: waiting costs almost nothing, and idling nothing") {
  const auto resting = over_each_transport(2, "rests"), idling = over_each_transport(2, "idles");
  for (const auto& job : resting) {
    const ending waited = job->finish();
    CAPTURE(waited.output);
    CAPTURE(waited.error);
    CHECK(waited.exit_code == 0);
    CHECK(waited.error.empty());
    // Four seconds with a little more than two checks a second, and as many answers.
    const double parks = number_after(waited.output, "parks ");
    CHECK(parks >= 1);
    CHECK(parks <= 24);
    CHECK(number_after(waited.output, "cpu ") < 0.5);
  }
  for (const auto& job : idling) {
    const ending idled = job->finish();
    CAPTURE(idled.output);
    CHECK(idled.exit_code == 0);
    for (const std::string rank : {"rank 0 parks ", "rank 1 parks "})
      CHECK(number_after(idled.output, rank) <= 4);  // two checks a second would be six
  }
}

TEST_CASE("watch: a rank that does not read for eight seconds is alive") {
  const ending end =
      launched(command(2, "reads_late"), {"TUTTI_TRANSPORTS=tcp", "TUTTI_SILENCE_LIMIT=0.5"}).finish();
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  CHECK(contains(end.output, "sent\n"));
}

TEST_CASE("watch: the rank that serves the store dies, and groups without it continue") {
  for (const auto& job : over_each_transport(3, "loses_its_store", {}, {"--on-failure", "continue"})) {
    const ending end = job->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(count_of(end.output, "without the store: right\n") == 2);
  }
}

TEST_CASE("watch: a cable is cut: waiting ranks know within the limit") {
  TUTTI_NEEDS_A_KERNEL("say what the kernel knows of a connection");
  std::string why_not;
  const auto one = two_networks::make(why_not), other = two_networks::make(why_not);
  if (!one || !other) TUTTI_SKIP(why_not);
  two_hosts usual(*one, "falls_silent", {}), strict(*other, "falls_silent", {"TUTTI_SILENCE_LIMIT=0.5"});
  for (two_hosts* hosts : {&usual, &strict}) {
    hosts->first.wait_for("ready\n");
    hosts->second.wait_for("ready\n");
  }
  one->cut();
  other->cut();
  for (two_hosts* hosts : {&strict, &usual}) {
    const bool is_usual = hosts == &usual;
    CAPTURE(is_usual);
    const double most = is_usual ? 15.0 : 8.0;  // the operations' own timeout is much longer
    // Each launcher still waits for the other.
    for (launched* each : {&hosts->first, &hosts->second}) {
      each->wait_for(" heard at ");
      each->wait_for("\n", 2);
      CAPTURE(each->output());
      const double after = number_after(each->output(), ", ");
      MESSAGE("limit " << (is_usual ? 3 : 0.5) << " s: silence was noticed after " << after << " s");
      CHECK(after > 0.3);
      CHECK(after <= most);
      CHECK(contains(each->output(), "peer_failed: "));
      CHECK(contains(each->output(), "nothing has come from its host for "));
      CHECK(contains(each->output(), " (host "));
    }
  }
}

TEST_CASE("watch: a slow and distant network does not count as dead") {
  std::string why_not;
  const auto networks = two_networks::make(why_not);
  if (!networks) TUTTI_SKIP(why_not);
  if (!networks->slow_down("netem delay 50ms rate 2mbit") &&
      !networks->slow_down("tbf rate 2mbit burst 16kb latency 400ms"))
    TUTTI_SKIP("this kernel, or this user, cannot slow a network down (tc with netem or tbf)");
  two_hosts hosts(*networks, "crawls", {"TUTTI_SILENCE_LIMIT=1"});
  for (launched* each : {&hosts.first, &hosts.second}) {
    const ending end = each->finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(contains(end.output, "sum right\n"));
    CHECK(!contains(end.error, "given up"));  // an answer may stay queued so long that it is missed
    CHECK(number_after(end.output, "grown by ") <= 64);
  }
}

TEST_CASE(
    "watch: a host of several ranks falls silent: those of the other go on without waiting for their "
    "timeout") {
  TUTTI_NEEDS_A_KERNEL("say what the kernel knows of a connection");
  std::string why_not;
  const auto networks = two_networks::make(why_not);
  if (!networks) TUTTI_SKIP(why_not);
  two_hosts hosts(*networks, "goes_on_without_a_host", {"TUTTI_SILENCE_LIMIT=1"}, 3);
  hosts.first.wait_for("ready\n", 3);
  hosts.second.wait_for("ready\n", 3);
  networks->swallow();
  for (launched* each : {&hosts.first, &hosts.second}) {
    each->wait_for(" goes on with 3 of 3, ", 3);
    each->wait_for("\n", 6);
    CAPTURE(each->output());
    const double after = number_after(each->output(), " of 3, ");
    MESSAGE("the others went on after " << after << " s");
    CHECK(after <= 20);  // the operations' own timeout is much longer
  }
}
