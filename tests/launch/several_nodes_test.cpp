// SPDX-License-Identifier: Apache-2.0
// Several launchers of one job, on addresses of this machine.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "launch/store_socket.hpp"
#include "launched.hpp"
#include "support/contains.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

using tutti::test::contains;

// One job. The test starts each node, which pretends to be a host of its own.
struct job_of_nodes {
  int nodes;
  std::string master = testing::free_address();

  std::unique_ptr<launched> start(int node, words options, const words& program,
                                  const std::string& secret = "common") const {
    words all = {"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(node), "--master", master};
    if (std::find(options.begin(), options.end(), "--join-timeout") == options.end())
      all.insert(all.end(), {"--join-timeout", "20"});
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), program.begin(), program.end());
    return std::make_unique<launched>(
        all, words{"TUTTI_SECRET=" + secret, "TUTTI_HOST_ID=host" + std::to_string(node)});
  }
};

// Prints "ready", then waits in the shell. $0 is a fifo without a writer.
struct waiting {
  testing::temporary_directory folder;
  std::string silence = folder.fifo("silence");
  words program(const std::string& before = ":") const {
    return {"bash", "-c", "exec 3<>$0; " + before + "; echo ready $$; " + testing::wait_for_signals, silence};
  }
};

// The processes that ranks have printed after "ready".
std::vector<testing::watched> ranks_of(const launched& node) {
  std::vector<testing::watched> ranks;
  const std::string& text = node.output();
  for (std::size_t at = 0; (at = text.find("ready ", at)) != std::string::npos; at += 6)
    ranks.emplace_back(std::stoi(text.substr(at + 6)));
  return ranks;
}

}  // namespace

TEST_SUITE("launch/several_nodes") {
  TEST_CASE("nodes with different numbers of ranks, in any order") {
    const job_of_nodes job{3};
    const words program = {
        "--tag-output", "never", "sh", "-c",
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $NNODES "
        "${MASTER_ADDR} ${TUTTI_STORE_FD:+store} id $TUTTI_JOB_ID $MASTER_PORT"};
    auto third = job.start(2, {"-n", "2"}, program);
    auto first = job.start(0, {"-n", "1"}, program);
    auto second = job.start(1, {"-n", "3"}, program);
    const ending ends[] = {first->finish(), second->finish(), third->finish()};
    const std::string host = job.master.substr(0, job.master.find(':'));
    std::string rest;  // id and port, the same everywhere
    int rank = 0;
    for (int node = 0; node < 3; ++node) {
      CHECK(ends[node].exit_code == 0);
      CHECK(ends[node].error.empty());
      const words lines = testing::lines_of(ends[node].output);
      const int ranks[] = {1, 3, 2};
      REQUIRE(lines.size() == static_cast<std::size_t>(ranks[node]));
      for (int local = 0; local < ranks[node]; ++local, ++rank) {
        const std::string& line = lines[static_cast<std::size_t>(local)];
        const std::size_t id = line.find(" id ");
        const std::string place = std::to_string(rank) + " 6 " + std::to_string(local) + " " +
                                  std::to_string(ranks[node]) + " " + std::to_string(node) + " " +
                                  std::to_string(node) + " 3 " + host + (rank == 0 ? " store" : "");
        CHECK(line.substr(0, id) == place);
        if (rest.empty()) rest = line.substr(id);
        CHECK(line.substr(id) == rest);
      }
    }
  }

  TEST_CASE("where nodes come and go, ranks of other nodes reach node 0's store through their launcher") {
    const std::string master = testing::free_address();
    const auto start = [&](const char* node) {
      return std::make_unique<launched>(
          words{"--nnodes", "2:3", "--node-rank", node, "--master", master, "-n", "2", "--tag-output",
                "never", "sh", "-c", "echo relay${TUTTI_STORE_RELAY:+ed}"},
          words{"TUTTI_SECRET=common", "TUTTI_STORE_RELAY=5"});
    };
    auto first = start("0"), second = start("1");
    CHECK(first->finish().output == "relay\nrelay\n");
    CHECK(second->finish().output == "relayed\nrelayed\n");
  }

  TEST_CASE("a failure on any node ends the job everywhere, with its exit code and last lines") {
    const waiting silence;
    const job_of_nodes job{2};
    const testing::temporary_directory folder;
    const std::string go = folder.fifo("go");
    auto first = job.start(0, {"-n", "2"}, silence.program());
    auto second = job.start(
        1, {"-n", "2"},
        {"sh", "-c", "[ $RANK = 3 ] && { read x < $0; echo alas >&2; exit 7; }; exec sleep 1000", go});
    first->wait_for("ready", 2);
    const tutti::base::unique_fd start(::open(go.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::write(start.get(), "\n", 1) == 1);
    const ending on_first = first->finish(), on_second = second->finish();
    CHECK(on_first.exit_code == 7);
    CHECK(on_second.exit_code == 7);
    CHECK(contains(on_first.error, "rank 3 failed first: it exited with code 7 (pid "));
    CHECK(contains(on_first.error, ", node 1, "));
    CHECK(contains(on_first.error, "the last lines on the standard error of rank 3:\n  | alas\n"));
    CHECK(contains(on_first.error, "ranks 0-2: stopped by tutti-run\n"));
    CHECK(contains(on_second.error, "rank 3 failed first: it exited with code 7 (pid "));
  }

  TEST_CASE("a failure on node 0 ends the others") {
    const waiting silence;
    const job_of_nodes job{2};
    auto second = job.start(1, {"-n", "1"}, silence.program());
    auto first = job.start(0, {"-n", "1"}, {"sh", "-c", "read x; kill -SEGV $$"});
    second->wait_for("ready");
    first->write_input("\n");
    CHECK(first->finish().exit_code == 128 + SIGSEGV);
    const ending on_second = second->finish();
    CHECK(on_second.exit_code == 128 + SIGSEGV);
    CHECK(contains(on_second.error, "rank 0 failed first: it was killed by SIGSEGV"));
  }

  TEST_CASE("a signal that ends the job may go to any launcher") {
    const waiting silence;
    for (const int told : {0, 1}) {
      const job_of_nodes job{2};
      std::unique_ptr<launched> nodes[] = {job.start(0, {"-n", "2"}, silence.program()),
                                           job.start(1, {"-n", "1"}, silence.program())};
      nodes[0]->wait_for("ready", 2);
      nodes[1]->wait_for("ready");
      nodes[told]->signal(SIGINT);
      for (const auto& node : nodes) {
        const ending end = node->finish();
        CHECK(end.exit_code == 128 + SIGINT);
        CHECK(contains(end.error, "the job was stopped by SIGINT on node " + std::to_string(told)));
      }
    }
  }

  TEST_CASE("a second Ctrl-C kills on all nodes") {
    const waiting silence;
    const job_of_nodes job{2};
    const words deaf = silence.program("trap 'echo no' INT; trap '' TERM");
    auto first = job.start(0, {"-n", "1", "--grace", "1000"}, deaf);
    auto second = job.start(1, {"-n", "1"}, deaf);
    first->wait_for("ready");
    second->wait_for("ready");
    second->signal(SIGINT);
    first->wait_for("no");
    second->wait_for("no");
    second->signal(SIGINT);
    CHECK(first->finish().exit_code == 128 + SIGINT);
    CHECK(second->finish().exit_code == 128 + SIGINT);
  }

  TEST_CASE("a signal before all nodes have come") {
    const job_of_nodes job{3};
    auto first = job.start(0, {"-n", "1"}, {"true"});
    auto second = job.start(1, {"-n", "1"}, {"true"});
    first->wait_until_it_takes_signals();
    second->wait_until_it_takes_signals();
    second->signal(SIGTERM);
    CHECK(second->finish().exit_code == 128 + SIGTERM);
    // Node 0 ends by the other's signal if it has already arrived, or else by its own.
    first->signal(SIGTERM);
    CHECK(first->finish().exit_code == 128 + SIGTERM);
  }

  TEST_CASE("a killed launcher ends its ranks and the job") {
    const waiting silence;
    for (const int victim : {0, 1}) {
      const job_of_nodes job{2};
      std::unique_ptr<launched> nodes[] = {job.start(0, {"-n", "2"}, silence.program()),
                                           job.start(1, {"-n", "2"}, silence.program())};
      for (const auto& node : nodes) node->wait_for("ready", 2);
      for (const auto& node : nodes) node->wait_for("\n", 2);
      std::vector<testing::watched> ranks = ranks_of(*nodes[0]);
      for (testing::watched& rank : ranks_of(*nodes[1])) ranks.push_back(std::move(rank));
      REQUIRE(ranks.size() == 4);
      nodes[victim]->signal(SIGKILL);
      for (testing::watched& rank : ranks) CHECK(rank.dies());
      CHECK(nodes[victim]->finish().exit_code == 128 + SIGKILL);
      const ending end = nodes[1 - victim]->finish();
      CHECK(end.exit_code == 1);
      CHECK(contains(end.error, "node " + std::to_string(victim)));
      CHECK(contains(end.error, " was lost: "));
      if (victim == 1) CHECK(contains(end.error, "node 1 (ranks 2-3 on "));
    }
  }

  TEST_CASE("a second signal does not wait for a launcher that does not answer") {
    const waiting silence;
    for (const int stuck : {0, 1}) {
      const job_of_nodes job{2};
      std::unique_ptr<launched> nodes[] = {job.start(0, {"-n", "1"}, silence.program()),
                                           job.start(1, {"-n", "1"}, silence.program())};
      for (const auto& node : nodes) node->wait_for("ready");
      nodes[stuck]->pause();
      launched& other = *nodes[1 - stuck];
      other.insist(SIGINT);
      const ending end = other.finish();
      CHECK(end.exit_code == 128 + SIGINT);
      CHECK(contains(end.error, "the job was stopped by SIGINT"));
    }
  }

  TEST_CASE("ranks inherit no descriptors of the launchers") {
    const job_of_nodes job{2};
    const words program = {
        "--tag-output", "never", "sh", "-c",
        "for f in /proc/$$/fd/*; do [ ${f##*/} -gt 2 ] && echo has $(readlink $f); done; echo all"};
    auto first = job.start(0, {"-n", "2"}, program);
    auto second = job.start(1, {"-n", "1"}, program);
    const std::string on_first = first->finish().output, on_second = second->finish().output;
    CHECK(testing::count_of(on_first, "all\n") == 2);
    CHECK(testing::count_of(on_first, "has socket:") == 1);  // the store, of rank 0
    CHECK(testing::count_of(on_second, "all\n") == 1);
    CHECK(testing::count_of(on_second, "has socket:") == 0);
    CHECK(testing::count_of(on_first + on_second, "has anon_inode:") == 0);
  }

  TEST_CASE("--on-failure continue") {
    const job_of_nodes job{2};
    const testing::temporary_directory folder;
    const std::string go = folder.fifo("go");
    auto first =
        job.start(0, {"-n", "1", "--on-failure", "continue"}, {"sh", "-c", "echo up; read x; echo done"});
    auto second =
        job.start(1, {"-n", "2"}, {"sh", "-c", "[ $RANK = 2 ] && exit 9; read x < $0; echo done", go});
    first->wait_for("up");
    first->wait_for_error("rank 2 exited with code 9");
    const tutti::base::unique_fd start(::open(go.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::write(start.get(), "\n", 1) == 1);
    second->wait_for("done");
    first->write_input("\n");
    const ending on_first = first->finish(), on_second = second->finish();
    CHECK(on_first.exit_code == 9);
    CHECK(on_first.output == "up\ndone\n");
    CHECK(contains(on_first.error, "; the others go on\n"));
    CHECK(on_second.exit_code == 9);
  }

  TEST_CASE("--max-restarts starts all nodes again") {
    const job_of_nodes job{2};
    const words program = {
        "sh", "-c",
        "echo count $TUTTI_RESTART_COUNT port $MASTER_PORT; "
        "[ $TUTTI_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 3; exec sleep 1000"};
    auto first = job.start(0, {"-n", "1", "--max-restarts", "5"}, program);
    auto second = job.start(1, {"-n", "1"}, program);
    for (const auto* node : {&first, &second}) {
      const ending end = (*node)->finish();
      CHECK(end.exit_code == 0);
      for (const char* count : {"count 0", "count 1", "count 2"})
        CHECK(testing::count_of(end.output, count) <= 1);
      CHECK(contains(end.output, "count 2"));
      CHECK(contains(end.error, "tutti-run: restart 1 of 5: rank 1 exited with code 3 (pid "));
      CHECK(contains(end.error, "tutti-run: restart 2 of 5: "));
      CHECK(testing::count_of(end.error, "\n") == 2);
    }
  }

  TEST_CASE("--on-failure restart: a rank that fails after one of another node has finished ends the job") {
    const job_of_nodes job{2};
    const words restarts = {"-n", "1", "--on-failure", "restart", "--max-restarts", "1000"};
    auto second = job.start(1, restarts, {"echo", "done"});
    // Node 1 may still be telling that its rank has finished.
    auto first = job.start(0, restarts, {"sh", "-c", "[ $TUTTI_RESTART_COUNT = 0 ] && read x; exit 7"});
    second->wait_for("done");
    first->write_input("\n");
    const ending on_first = first->finish(), on_second = second->finish();
    CHECK(on_first.exit_code == 7);
    CHECK(on_second.exit_code == 7);
    CHECK(contains(on_first.error, "rank 0 is not started anew: rank 1 has finished"));
    CHECK(contains(on_first.error, "rank 0 failed first: it exited with code 7"));
  }

  TEST_CASE("a program that is missing on one node is named there") {
    const waiting silence;
    const job_of_nodes job{2};
    auto first = job.start(0, {"-n", "1", "--max-restarts", "5"}, silence.program());
    auto second = job.start(1, {"-n", "1"}, {"./no-such-program"});
    const ending on_first = first->finish();
    CHECK(on_first.exit_code == 127);
    CHECK(contains(on_first.error, "cannot start "));
    CHECK(contains(on_first.error, ", node 1: No such file"));
    CHECK(second->finish().exit_code == 127);
  }

  TEST_CASE("a missing node is named") {
    const job_of_nodes job{3};
    auto first = job.start(0, {"-n", "1", "--join-timeout", "0.2"}, {"true"});
    const ending end = first->finish();
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "nodes 1-2 did not come to " + job.master + " within 200 ms"));
    auto second = job.start(1, {"-n", "1", "--join-timeout", "0.2"}, {"true"});
    const ending alone = second->finish();
    CHECK(alone.exit_code == 1);
    CHECK(contains(alone.error, "cannot join node 0 at " + job.master + ": nobody was there within 200 ms"));
  }

  TEST_CASE("nodes that have come learn which have not") {
    const job_of_nodes job{3};
    auto second = job.start(1, {"-n", "1"}, {"true"});
    auto first = job.start(0, {"-n", "1", "--join-timeout", "1"}, {"true"});
    const ending on_second = second->finish(), on_first = first->finish();
    CHECK(on_first.exit_code == 1);
    CHECK(on_second.exit_code == 1);
    for (const ending* end : {&on_first, &on_second}) CHECK(contains(end->error, "node 2 did not come to "));
  }

  TEST_CASE("--timeout on any node ends all") {
    for (const int impatient : {0, 1}) {
      const job_of_nodes job{2};
      std::unique_ptr<launched> nodes[2];
      for (const int node : {0, 1})
        nodes[node] =
            job.start(node, {"-n", "1", "--timeout", node == impatient ? "0.5" : "0"}, {"sleep", "1000"});
      for (const auto& node : nodes) CHECK(node->finish().exit_code == 124);
    }
  }

  TEST_CASE("another secret: both sides report it") {
    const job_of_nodes job{2};
    auto first = job.start(0, {"-n", "1"}, {"true"});
    auto outsider = job.start(1, {"-n", "1"}, {"true"}, "another");
    const ending turned_away = outsider->finish();
    CHECK(turned_away.exit_code == 1);
    CHECK(contains(turned_away.error, "TUTTI_SECRET"));
    auto second = job.start(1, {"-n", "1"}, {"true"});  // it may still be corrected
    const ending end = first->finish();
    CHECK(end.exit_code == 0);
    CHECK(contains(end.error, "could not prove that it knows the job's secret"));
    CHECK(second->finish().exit_code == 0);
  }

  TEST_CASE("two nodes with one number, and a different number of nodes") {
    const job_of_nodes job{3};
    auto first = job.start(0, {"-n", "1"}, {"sh", "-c", "read x"});  // goes on until both have come
    auto second = job.start(1, {"-n", "1"}, {"true"});
    auto same = job.start(1, {"-n", "1"}, {"true"});
    job_of_nodes other = job;
    other.nodes = 4;
    auto wrong = other.start(2, {"-n", "1"}, {"true"});
    const ending miscounted = wrong->finish();
    CHECK(miscounted.exit_code == 2);
    CHECK(contains(miscounted.error, "has --nnodes 4, and node 0 has --nnodes 3"));
    auto third = job.start(2, {"-n", "1"}, {"true"});
    first->wait_for_error("has --node-rank 1, and so has ");
    first->write_input("\n");
    // Either of the two may be the first.
    const ending a = second->finish(), b = same->finish();
    CHECK(a.exit_code + b.exit_code == 2);
    CHECK(contains(a.error + b.error, "give each node a --node-rank of its own"));
    const ending end = first->finish();
    CHECK(end.exit_code == 0);
    CHECK(contains(end.error, "has --nnodes 4"));
    CHECK(third->finish().exit_code == 0);
  }

  TEST_CASE("the port is in use; node 0 is on the wrong machine") {
    const job_of_nodes job{2};
    auto first = job.start(0, {"-n", "1"}, {"true"});
    auto outsider = job.start(1, {"-n", "1"}, {"true"}, "another");
    outsider->finish();  // so that the first can listen
    auto other = job.start(0, {"-n", "1"}, {"true"});
    const ending end = other->finish();
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "choose another for --master"));
    first->wait_until_it_takes_signals();
    first->signal(SIGTERM);
    first->finish();
    job_of_nodes elsewhere{2};
    elsewhere.master = "192.0.2.1:29500";
    CHECK(contains(elsewhere.start(0, {"-n", "1"}, {"true"})->finish().error, "--node-rank 0"));
  }

  TEST_CASE("the reader of one node's output ends") {
    const waiting silence;
    const job_of_nodes job{2};
    auto first = job.start(0, {"-n", "1"}, silence.program());
    auto second = job.start(1, {"-n", "1"}, {"sh", "-c", "while :; do echo y; done"});
    first->wait_for("ready");
    second->wait_for("y");
    second->close_output();
    CHECK(second->finish().exit_code == 128 + SIGPIPE);
    const ending end = first->finish();
    CHECK(end.exit_code == 128 + SIGPIPE);
    CHECK(contains(end.error, "nobody reads the output on node 1"));
  }
}
