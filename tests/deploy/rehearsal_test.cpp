// SPDX-License-Identifier: Apache-2.0
// Rehearses the files of deploy/: namespaces replace pods, and the test sets the variables of a cluster.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/launched.hpp"
#include "launch/pod_names.hpp"
#include "launch/two_networks.hpp"
#include "manifests.hpp"
#include "support/contains.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;
using std::chrono::steady_clock;

namespace {

using tutti::test::contains;

// Requirements of a rehearsal; `missing` names what this machine lacks.
struct rehearsal {
  rehearsal() {
    networks = testing::two_networks::make(missing);
    if (networks && !testing::pod_names::available())
      missing = "this user may not mount a file over /etc/hosts";
  }

  // Starts one pod of a manifest with another program.
  std::unique_ptr<launched> start_pod(const std::vector<deploy::pod>& pods, int index, const words& program) {
    const deploy::pod& pod = pods.at(static_cast<std::size_t>(index));
    words command = {testing::launcher_path()};
    for (const words& part : {pod.options, words{"--join-timeout", "20", "--tag-output", "never"}, program})
      command.insert(command.end(), part.begin(), part.end());
    return std::make_unique<launched>(names.seen_by(command), pod.variables, networks->network(index),
                                      "/usr/bin/env");
  }

  // Starts all pods at once.
  void start(const std::vector<deploy::pod>& pods, const words& program) {
    names.write(networks->address(0) + " " + pods.at(0).first_host + "\n");
    running.clear();
    for (const int index : {0, 1}) running.push_back(start_pod(pods, index, program));
  }

  // Waits until all four ranks of each pod have printed "ready". Returns these ranks.
  std::vector<testing::watched> wait_until_ready() {
    std::vector<testing::watched> ranks;
    for (const auto& each : running) {
      each->wait_for("ready ", 4);
      each->wait_for("\n", 4);
      for (const std::string& line : testing::lines_of(each->output()))
        ranks.emplace_back(std::stoi(line.substr(6)));
    }
    return ranks;
  }

  // All eight ranks of `sums` must be right, and both pods end in order; `second`: of pod 1, if it has ended.
  void check_sums(const std::optional<ending>& second = {}) {
    std::string output;
    for (const auto& each : running) {
      const ending end = second && &each == &running.back() ? *second : each->finish();
      CHECK_MESSAGE(end.exit_code == 0, end.error);
      output += end.output;
    }
    for (int rank = 0; rank < 8; ++rank)
      CHECK(testing::count_of(output, "rank " + std::to_string(rank) + " of 8: right\n") == 1);
  }

  std::string missing;
  std::unique_ptr<testing::two_networks> networks;
  testing::pod_names names;
  std::vector<std::unique_ptr<launched>> running;
};

// The time limit for the end of a pod, from indexed-job.yaml.
constexpr std::chrono::seconds termination_grace_period{30}, grace_of_tutti_run{10};

// Two tasks for two nodes of a step, both in one network, with the variables that Slurm sets. SIGTERM goes to
// both, like by scancel. Returns the variable PATH under which the script finds it and tutti-run.
std::string stand_in_for_srun(const tutti::test::scratch_directory& scratch) {
  const auto srun = scratch.write("srun", R"(#!/bin/sh
echo "secret of ${#TUTTI_SECRET}, options $1"
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST='node[7-8]'
trap 'kill -TERM $first $second' TERM
SLURM_NODEID=0 TUTTI_HOST_ID=a "$@" & first=$!
SLURM_NODEID=1 TUTTI_HOST_ID=b "$@" & second=$!
ended() {
  while :; do
    wait $1; code=$?
    kill -0 $1 2>/dev/null || return $code
  done
}
ended $first; code=$?
ended $second && exit $code
)");
  std::filesystem::permissions(srun, std::filesystem::perms::owner_all);
  return "PATH=" + scratch.path().string() + ":" +
         std::filesystem::path(testing::launcher_path()).parent_path().string() + ":/usr/bin:/bin";
}

}  // namespace

TEST_SUITE("deploy/rehearsal") {
  TEST_CASE("the pods of each manifest find each other and compute") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    for (const auto& manifest : deploy::manifests()) {
      CAPTURE(manifest.string());
      r.start(deploy::pods_of(manifest), {TUTTI_SUMS_PATH});
      r.check_sums();
    }
  }

  TEST_CASE("a pod of a drained node ends within its grace period, and the other names the reason") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    const auto pods = deploy::pods_of(deploy::file("kubernetes/indexed-job.yaml"));
    for (const int drained : {1, 0}) {
      CAPTURE(drained);
      r.start(pods, {TUTTI_DRILL_PATH, "wait_for_ever"});
      auto ranks = r.wait_until_ready();
      const auto begin = steady_clock::now();
      r.running[static_cast<std::size_t>(drained)]->signal(SIGTERM);
      const ending ends[] = {r.running[0]->finish(), r.running[1]->finish()};
      CHECK(steady_clock::now() - begin < grace_of_tutti_run);
      for (testing::watched& rank : ranks) CHECK(rank.dies());
      for (const ending& end : ends) {
        CHECK(end.exit_code == 128 + SIGTERM);
        CHECK_MESSAGE(
            contains(end.error, "the job was stopped by SIGTERM on node " + std::to_string(drained)),
            end.error);
      }
    }
  }

  TEST_CASE("ranks that ignore SIGTERM do not outlive the grace period of their pod") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    // `exec` keeps the ignored signal and one process for each rank.
    r.start(deploy::pods_of(deploy::file("kubernetes/indexed-job.yaml")),
            {"sh", "-c", "trap '' TERM; echo ready $$; exec sleep 1000"});
    auto ranks = r.wait_until_ready();
    const auto begin = steady_clock::now();
    r.running[1]->signal(SIGTERM);
    for (const auto& each : r.running) CHECK(each->finish().exit_code == 128 + SIGTERM);
    const auto taken = steady_clock::now() - begin;
    CHECK(taken >= grace_of_tutti_run);
    CHECK(taken < termination_grace_period);
    for (testing::watched& rank : ranks) CHECK(rank.dies());
  }

  TEST_CASE("a pod dies: the other ends and names it, and their replacements compute") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    const auto pods = deploy::pods_of(deploy::file("kubernetes/indexed-job.yaml"));
    r.start(pods, {TUTTI_DRILL_PATH, "wait_for_ever"});
    auto ranks = r.wait_until_ready();
    r.running[1]->signal(SIGKILL);
    const ending left = r.running[0]->finish();
    CHECK(left.exit_code == 1);
    CHECK_MESSAGE(contains(left.error, "node 1 (ranks 4-7 on "), left.error);
    CHECK(contains(left.error, " was lost: "));
    for (testing::watched& rank : ranks) CHECK(rank.dies());
    CHECK(r.running[1]->finish().exit_code == 128 + SIGKILL);
    r.start(pods, {TUTTI_SUMS_PATH});
    r.check_sums();
  }

  TEST_CASE("a pod that returns before node 0 has ended does not disturb the next start") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    const auto pods = deploy::pods_of(deploy::file("kubernetes/leader-worker-set.yaml"));
    r.start(pods, {TUTTI_DRILL_PATH, "wait_for_ever"});
    r.wait_until_ready();
    r.running[0]->pause();
    r.running[1]->signal(SIGKILL);
    r.running[1]->finish();
    r.running[1] = r.start_pod(pods, 1, {TUTTI_SUMS_PATH});
    r.running[1]->read_for(std::chrono::milliseconds(500));
    r.running[0]->signal(SIGCONT);
    CHECK(r.running[0]->finish().exit_code == 1);
    r.running[0] = r.start_pod(pods, 0, {TUTTI_SUMS_PATH});
    // It waits for the next node 0 if the previous one no longer listened. Otherwise it is refused, or sees
    // the end of the previous one, and is restarted like every pod.
    const ending second = r.running[1]->finish();
    if (second.exit_code == 0) return r.check_sums(second);
    CHECK_MESSAGE((contains(second.error, " comes too late: the job is over") ||
                   contains(second.error, "node 0 at tutti-0.tutti.default:29500 was lost: ")),
                  second.error);
    r.running[1] = r.start_pod(pods, 1, {TUTTI_SUMS_PATH});
    r.check_sums();
  }

  TEST_CASE("the sbatch script starts a job in a step, and scancel ends it within its grace period") {
    rehearsal r;
    if (!r.missing.empty()) TUTTI_SKIP(r.missing);
    r.names.write("127.0.0.1 node7\n");
    const tutti::test::scratch_directory scratch;
    const std::string path = stand_in_for_srun(scratch);
    const auto start = [&](const words& program) {
      words command = {"bash", deploy::file("slurm/train.sbatch").string()};
      command.insert(command.end(), program.begin(), program.end());
      return std::make_unique<launched>(r.names.seen_by(command), words{path}, r.networks->network(0),
                                        "/usr/bin/env");
    };
    const ending end = start({TUTTI_SUMS_PATH})->finish();
    CHECK_MESSAGE(end.exit_code == 0, end.error);
    CHECK(contains(end.output, "secret of 64, options --ntasks-per-node=1\n"));
    for (int rank = 0; rank < 8; ++rank)
      CHECK(contains(end.output, "rank " + std::to_string(rank) + " of 8: right\n"));

    const auto cancelled = start({TUTTI_DRILL_PATH, "wait_for_ever"});
    cancelled->wait_for("ready ", 8);
    const auto begin = steady_clock::now();
    cancelled->signal(SIGTERM);
    const ending stopped = cancelled->finish();
    CHECK(steady_clock::now() - begin < grace_of_tutti_run);
    CHECK(stopped.exit_code == 128 + SIGTERM);
    CHECK_MESSAGE(contains(stopped.error, "the job was stopped by SIGTERM"), stopped.error);
  }
}
