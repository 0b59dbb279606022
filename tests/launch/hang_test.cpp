// SPDX-License-Identifier: Apache-2.0
// A job that hangs: the explanations of tutti-run at Ctrl-\, at a signal to a rank, by itself, and after a
// failure.
#include "launch/launched.hpp"
#include "support/contains.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::free_address;
using tutti::launch::testing::launch;
using tutti::launch::testing::launched;

namespace {

const std::string transports[] = {"shm", "tcp"};

std::vector<std::string> command(const std::string& program, int ranks,
                                 std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks), "--tag-output", "never"});
  options.insert(options.end(), {TUTTI_STUCK_PATH, program});
  return options;
}

using tutti::test::contains;

// The pids in "ready PID" lines, in any order.
std::vector<pid_t> processes(launched& job, int ranks) {
  job.wait_for("ready", ranks);
  job.wait_for("\n", ranks);
  std::vector<pid_t> all;
  std::istringstream words(job.output());
  for (std::string word; words >> word;)
    if (word != "ready") all.push_back(std::stoi(word));
  return all;
}

ending end(launched& job) {
  job.signal(SIGTERM);
  return job.finish();
}

}  // namespace

TEST_CASE("hang: ranks that wait for each other's message are a circle") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    launched two(command("receives_in_a_circle", 2), {"TUTTI_TRANSPORTS=" + transport});
    processes(two, 2);
    two.ask(SIGQUIT, "a circle: rank 0 waits for 1 (recv at stuck.cpp:");
    const ending of_two = end(two);
    CHECK(contains(of_two.error, "who waits for whom"));
    CHECK(contains(of_two.error, "in recv from rank 1, tag 7 on world, 4 bytes, at stuck.cpp:"));
    CHECK(contains(of_two.error, "in recv from rank 0, tag 7 on world, 4 bytes, at stuck.cpp:"));
    CHECK(of_two.exit_code == 128 + SIGTERM);

    launched three(command("receives_in_a_circle", 3), {"TUTTI_TRANSPORTS=" + transport});
    processes(three, 3);
    three.ask(SIGQUIT, "a circle: rank 0 waits for 1");
    const ending of_three = end(three);
    CHECK(contains(of_three.error, ", 1 for 2 (recv at stuck.cpp:"));
    CHECK(contains(of_three.error, ", 2 for 0 (recv at stuck.cpp:"));
  }
}

TEST_CASE("hang: a rank in another operation that has not called a collective is named") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    launched job(command("one_does_not_enter", 3), {"TUTTI_TRANSPORTS=" + transport});
    processes(job, 3);
    job.ask(SIGQUIT, "all_reduce #2 on world has not been called by rank 2");
    job.ask(SIGQUIT, "ranks 0-1 wait for rank 2, which waits for no operation of tutti's");
    const ending all = end(job);
    CHECK(contains(all.error, "ranks 0-1: each waits "));
    CHECK(contains(all.error, "in all_reduce #2 on world, 4 bytes, at stuck.cpp:"));
    CHECK(contains(all.error, "last: barrier #1 on world, at stuck.cpp:"));
    CHECK(contains(all.error, "(the last that rank 2 called there was #1)"));
  }
}

TEST_CASE("hang: a rank that computes cannot answer, and the explanation still comes within a second") {
  launched job(command("one_computes", 3));
  processes(job, 3);
  job.ask(SIGQUIT, "computes on its loop thread: the loop has not turned for ");
  // It has computed for a while now. Only this answer is timed, several times in case of other load. (A question
  // that soon follows another has no answer of its own.)
  auto took = std::chrono::steady_clock::duration::max();
  for (int question = 0; question < 5 && took >= std::chrono::seconds(1); ++question) {
    const int before = count_of(job.error(), "which computes on its loop thread");
    const auto asked = std::chrono::steady_clock::now();
    job.signal(SIGQUIT);
    while (count_of(job.error(), "which computes on its loop thread") == before &&
           std::chrono::steady_clock::now() - asked < std::chrono::seconds(1))
      job.read_for(std::chrono::milliseconds(50));
    took = std::chrono::steady_clock::now() - asked;
  }
  CHECK(took < std::chrono::seconds(1));
  const ending all = end(job);
  CHECK(contains(all.error, "all_reduce #2 on world has not been called by rank 1"));
  CHECK(contains(all.error, "ranks 0, 2 wait for rank 1, which computes on its loop thread"));
}

TEST_CASE("hang: a rank whose pool computes is explained with the program's name for it") {
  launched job(command("one_computes_in_the_pool", 2));
  processes(job, 2);
  job.ask(SIGQUIT, "computes on the pool for ");
  job.ask(SIGQUIT, "has not been called by rank 1");
  const ending all = end(job);
  CHECK(contains(all.error, "is in \"a long step\" for "));
}

TEST_CASE("hang: a stopped rank is reported as stopped") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    launched job(command("barriers", 3), {"TUTTI_TRANSPORTS=" + transport});
    const std::vector<pid_t> all = processes(job, 3);
    REQUIRE(all.size() == 3);
    REQUIRE(::kill(all[0], SIGSTOP) == 0);
    job.ask(SIGQUIT, "(pid " + std::to_string(all[0]) + ") is stopped (SIGSTOP");
    job.ask(SIGQUIT, ", which is stopped (SIGSTOP");
    REQUIRE(::kill(all[0], SIGCONT) == 0);
    CHECK(end(job).exit_code == 128 + SIGTERM);
  }
}

TEST_CASE("hang: the last operations of a killed rank are reported") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    const ending killed = launched(command("one_is_killed", 2), {"TUTTI_TRANSPORTS=" + transport}).finish();
    CAPTURE(killed.error);
    CHECK(killed.exit_code == 128 + SIGKILL);
    CHECK(contains(killed.error, "tutti-run: the last operations of rank 1:"));
    CHECK(contains(killed.error, "  > recv from rank 0, tag 5 on world, 4 bytes, at stuck.cpp:"));
    CHECK(contains(killed.error, "never ended"));
    CHECK(contains(killed.error, "  > all_reduce #3 on world, 3.91 KiB, at stuck.cpp:"));
  }
}

TEST_CASE("hang: SIGUSR1 to a rank makes tutti-run explain, and the rank goes on") {
  launched job(command("receives_in_a_circle", 2));
  const std::vector<pid_t> all = processes(job, 2);
  for (int asked = 0; asked < 100; ++asked) {
    REQUIRE(::kill(all[1], SIGUSR1) == 0);
    if (job.read_for(std::chrono::milliseconds(300), "a circle:")) break;
  }
  CHECK(count_of(job.error(), "a circle: rank 0 waits for 1") > 0);
  for (const pid_t process : all) CHECK(::kill(process, 0) == 0);
  CHECK(end(job).exit_code == 128 + SIGTERM);
}

TEST_CASE("hang: --status asks a running job from outside, by its launcher or by a rank") {
  launched job(command("receives_in_a_circle", 2));
  const std::vector<pid_t> ranks = processes(job, 2);
  job.ask(SIGQUIT, "a circle: ");  // they wait now
  const pid_t launcher = job.pid();
  for (const pid_t pid : {job.pid(), ranks[0], ranks[1]}) {
    const ending asked = launch({"--status", std::to_string(pid)});
    INFO(asked.output);
    CHECK(asked.exit_code == 0);
    CHECK(contains(asked.output, "process " + std::to_string(pid) + ": "));
    CHECK(contains(asked.output, " receives_in_a_circle\n"));
    CHECK(contains(asked.output, "a circle: rank 0 waits for 1 (recv at stuck.cpp:"));
  }
  // A job is shown once, whichever of its processes is named first.
  const ending both = launch({"--status", std::to_string(ranks[1]), std::to_string(job.pid())});
  CHECK(count_of(both.output, "a circle: ") == 1);
  CHECK(contains(launch({"--status"}).output, "process " + std::to_string(job.pid()) + ": "));
  CHECK(contains(end(job).error, "who waits for whom"));  // it went on
  const ending none = launch({"--status", std::to_string(launcher)});
  CHECK(none.exit_code == 1);
  CHECK(contains(none.output, "no such process of a job runs here"));
  CHECK(contains(launch({"--status", "train"}).error, "give the number of a process"));
}

TEST_CASE("hang: --explain-after explains by itself, once for each hang") {
  launched job(command("receives_in_a_circle", 2, {"--explain-after", "0.5"}));
  job.wait_for_error("a circle: rank 0 waits for 1");
  job.read_for(std::chrono::milliseconds(1500));
  CHECK(count_of(job.error(), "who waits for whom") == 1);
  end(job);
}

TEST_CASE("hang: at a timeout one of the ranks explains which waits for which") {
  const ending all = launched(command("receives_in_a_circle", 2), {"TUTTI_TIMEOUT=1"}).finish();
  CAPTURE(all.error);
  CHECK(all.exit_code == 1);
  // Printed once by a rank; tutti-run may repeat its last lines.
  CHECK(count_of(all.error, "warning: a timeout; who waits for whom:") -
            count_of(all.error, "| tutti[0] warning: a timeout;") -
            count_of(all.error, "| tutti[1] warning: a timeout;") ==
        1);
  CHECK(contains(all.error, "a circle: rank 0 waits for 1"));
}

TEST_CASE("hang: with several nodes, node 0 explains all ranks, whichever launcher gets the signal") {
  const std::string address = free_address();
  const auto node = [&](const char* number) {
    return std::vector<std::string>{"-n",       "2",     "--tag-output",   "never",
                                    "--nnodes", "2",     "--node-rank",    number,
                                    "--master", address, TUTTI_STUCK_PATH, "receives_in_a_circle"};
  };
  launched first(node("0"), {"TUTTI_SECRET=secret"});
  launched second(node("1"), {"TUTTI_SECRET=secret"});
  processes(first, 2);
  processes(second, 2);
  for (int asked = 0; asked < 100; ++asked) {
    second.signal(SIGQUIT);
    if (first.read_for(std::chrono::milliseconds(300), "a circle:")) break;
  }
  second.signal(SIGTERM);
  const ending all = first.finish();
  CAPTURE(all.error);
  CHECK(contains(all.error, "a circle: rank 0 waits for 1 (recv at stuck.cpp:"));
  CHECK(contains(all.error, ", 3 for 0 (recv at stuck.cpp:"));
  CHECK(contains(all.error, "in recv from rank 3, tag 7 on world"));
  CHECK(all.exit_code == 128 + SIGTERM);
  CHECK(second.finish().exit_code == 128 + SIGTERM);
}

TEST_CASE("hang: programs without ranks are explained, too") {
  launched job({"-n", "2", "sh", "-c", "echo ready; exec sleep 600"});
  job.wait_for("ready", 2);
  job.ask(SIGQUIT, "has not joined");
  CHECK(end(job).exit_code == 128 + SIGTERM);
}
