// SPDX-License-Identifier: Apache-2.0
#include "launch/coordinator.hpp"
#include "support/contains.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <map>
#include <stdexcept>

using namespace tutti::launch;
using namespace std::chrono_literals;

namespace {

using tutti::test::contains;

outcome exited(int rank, int code, std::chrono::milliseconds after) {
  outcome end;
  end.rank = rank;
  end.pid = 100 + rank;
  end.exit_code = code;
  end.after = after;
  return end;
}

outcome signalled(int rank, int signal, std::chrono::milliseconds after) {
  outcome end = exited(rank, 0, after);
  end.signal = signal;
  return end;
}

options three_nodes() {
  options o;
  o.nodes = 3;
  o.ranks = 2;
  o.program = {"prog"};
  o.grace = 1000ms;
  return o;
}

// A coordinator, its commands to each node, and its messages.
struct desk {
  explicit desk(options of) : o(std::move(of)) {}

  options o;
  std::map<int, std::vector<command>> sent;
  std::string said;
  std::vector<std::chrono::milliseconds> times;
  int stores = 0;
  bool no_store = false;
  coordinator c{o,
                "id",
                {[this](int node, const command& what) { sent[node].push_back(what); },
                 [this](std::string_view lines) { said += lines; },
                 [this] {
                   if (no_store) throw std::runtime_error("no port");
                   return rank_0_ports{1000 + stores++, 5};
                 },
                 [this](std::chrono::milliseconds time) { times.push_back(time); }}};

  void all_join() {
    for (int node = 0; node < o.nodes; ++node)
      REQUIRE(!c.join({o.nodes, node, node + 1, "host" + std::to_string(node), 10 + node}));
  }
  template <class T>
  const T& last(int node) {
    REQUIRE(!sent[node].empty());
    REQUIRE(std::holds_alternative<T>(sent[node].back()));
    return std::get<T>(sent[node].back());
  }
  void ends(int node, std::vector<outcome> how, std::vector<std::string> lines = {}) {
    ranks_ended e;
    e.ends = std::move(how);
    e.last_lines = std::move(lines);
    c.on(node, e);
  }
};

}  // namespace

TEST_SUITE("launch/coordinator") {
  TEST_CASE("the job starts when the last node has come, with ranks in the order of nodes") {
    desk d(three_nodes());
    CHECK(!d.c.join({3, 2, 3, "host2", 12}));
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(d.sent.empty());
    CHECK(d.c.missing() == std::vector<int>{1});
    CHECK(!d.c.join({3, 1, 2, "host1", 11}));
    const int first[] = {0, 1, 3};
    for (int node = 0; node < 3; ++node) {
      const start_ranks& p = d.last<start_ranks>(node);
      CHECK(p.world_size == 6);
      CHECK(p.first_rank == first[node]);
      CHECK(p.ports.store == 1000);
      CHECK(p.ports.master == 5);
      CHECK(p.job_id == "id");
      CHECK(p.notice.empty());
    }
    for (int node = 0; node < 3; ++node) d.ends(node, {});
    for (int node = 0; node < 3; ++node) {
      CHECK(d.last<job_over>(node).exit_code == 0);
      CHECK(d.last<job_over>(node).report.empty());
    }
    CHECK(d.c.over());
  }

  TEST_CASE("a node that cannot be part of the job gets the reason") {
    desk d(three_nodes());
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(contains(*d.c.join({4, 1, 1, "host1", 11}), "--nnodes 4"));
    CHECK(contains(*d.c.join({3, 3, 1, "host1", 11}), "--node-rank 3"));
    CHECK(contains(*d.c.join({3, -1, 1, "host1", 11}), "make no sense"));
    CHECK(contains(*d.c.join({3, 1, 0, "host1", 11}), "make no sense"));
    CHECK(contains(*d.c.join({3, 0, 1, "host9", 19}), "and so has node 0 (host0) (pid 10)"));
    CHECK(d.c.missing().size() == 2);
  }

  TEST_CASE("a failure stops the other nodes; the cause is the first in time, from any node") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(2, rank_failed{exited(4, 1, 40ms), true});
    CHECK(d.last<stop_ranks>(0).signal == SIGTERM);
    CHECK(d.last<stop_ranks>(1).signal == SIGTERM);
    CHECK(std::holds_alternative<start_ranks>(d.sent[2].back()));  // stops by itself
    CHECK(d.times.back() > 1000ms);
    d.c.on(1, rank_failed{signalled(1, SIGSEGV, 50ms), false});
    d.ends(0, {exited(0, 0, 60ms)});
    d.ends(1, {signalled(1, SIGSEGV, 50ms), exited(2, 1, 55ms)}, {"alas"});
    CHECK(!d.c.over());
    d.ends(2, {exited(4, 1, 40ms), exited(3, 1, 41ms), exited(5, 1, 41ms)}, {"peer failed"});
    const job_over& over = d.last<job_over>(0);
    CHECK(over.exit_code == 128 + SIGSEGV);
    CHECK(contains(over.report,
                   "rank 1 failed first: it was killed by SIGSEGV (signal 11) (pid 101 on host1, node 1"));
    CHECK(contains(over.report, "  | alas\n"));
    CHECK(d.last<job_over>(1).report == over.report.substr(0, over.report.find('\n') + 1));
  }

  TEST_CASE("a lost node explains failures shortly before, and ends the job") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(0, rank_failed{exited(0, 1, 40ms), false});
    d.c.lost(1, "gone");
    d.ends(0, {exited(0, 1, 40ms)});
    d.ends(2, {});
    CHECK(d.last<job_over>(0).exit_code == 1);
    CHECK(d.last<job_over>(0).report.starts_with("tutti-run: node 1 (ranks 1-2 on host1) was lost: gone\n"));
    CHECK(std::holds_alternative<stop_ranks>(d.sent[1].back()));  // no command for the dead node
  }

  TEST_CASE("a failure with its own cause is not explained by a lost node, which is reported as well") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(0, rank_failed{signalled(0, SIGSEGV, 40ms), false});
    d.c.lost(1, "gone");
    d.ends(0, {signalled(0, SIGSEGV, 40ms)});
    d.ends(2, {});
    CHECK(d.last<job_over>(0).exit_code == 128 + SIGSEGV);
    CHECK(contains(d.last<job_over>(0).report, "rank 0 failed first"));
    CHECK(contains(d.last<job_over>(0).report, "node 1 (ranks 1-2 on host1) was lost: gone"));
  }

  TEST_CASE("a failure is named although its node is lost before it can report the rest") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(1, rank_failed{signalled(1, SIGBUS, 40ms), true});
    d.c.lost(1, "gone");
    d.ends(0, {});
    d.ends(2, {});
    CHECK(d.last<job_over>(0).exit_code == 128 + SIGBUS);
    CHECK(contains(d.last<job_over>(0).report, "rank 1 failed first"));
  }

  TEST_CASE("nodes that do not report the end of their ranks are not waited for") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(0, stop_wanted{stop_wanted::reason::signal, SIGINT, {}});
    d.ends(1, {});
    d.c.overdue();
    CHECK(!d.c.over());  // this node's own ranks always are
    d.ends(0, {});
    CHECK(d.c.over());
    CHECK(d.last<job_over>(0).exit_code == 128 + SIGINT);
    CHECK(contains(d.last<job_over>(0).report, "stopped by SIGINT on node 0"));
    CHECK(contains(d.last<job_over>(0).report, "node 2 (ranks 3-5 on host2) was lost: it does not tell"));
  }

  TEST_CASE("a signal before the start ends the waiting") {
    desk d(three_nodes());
    REQUIRE(!d.c.join({3, 0, 1, "host0", 10}));
    REQUIRE(!d.c.join({3, 1, 1, "host1", 11}));
    d.c.on(1, stop_wanted{stop_wanted::reason::signal, SIGTERM, {}});
    CHECK(d.last<job_over>(0).exit_code == 128 + SIGTERM);
    CHECK(d.last<job_over>(1).exit_code == 128 + SIGTERM);
    CHECK(d.sent.count(2) == 0);
    CHECK(contains(*d.c.join({3, 2, 1, "host2", 12}), "the job is over"));
  }

  TEST_CASE("a node that ends before the start ends the wait as well") {
    desk d(three_nodes());
    REQUIRE(!d.c.join({3, 0, 1, "host0", 10}));
    REQUIRE(!d.c.join({3, 1, 1, "host1", 11}));
    d.c.lost(1, "gone");
    CHECK(d.last<job_over>(0).exit_code == 1);
    CHECK(contains(d.last<job_over>(0).report, "node 1 (host1) was lost: gone"));
  }

  TEST_CASE("restarts: each with its own store, until all are used") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_all;
    o.max_restarts = 2;
    desk d(o);
    d.all_join();
    for (int round = 0; round < 3; ++round) {
      for (int node = 0; node < 3; ++node) {
        const start_ranks& p = d.last<start_ranks>(node);
        CHECK(p.restart_count == round);
        CHECK(p.ports.store == 1000 + round);
        CHECK(p.notice.empty() == (round == 0));
        if (round > 0)
          CHECK(p.notice ==
                "tutti-run: restart " + std::to_string(round) +
                    " of 2: rank 0 exited with code 4 (pid 100 on host0, node 0, 0.005 s after the "
                    "start)\n");
      }
      d.c.on(0, rank_failed{exited(0, 4, 5ms), false});
      for (int node = 2; node >= 0; --node)
        d.ends(node, node == 0 ? std::vector{exited(0, 4, 5ms)} : std::vector<outcome>{});
    }
    CHECK(d.last<job_over>(2).exit_code == 4);
    CHECK(contains(d.last<job_over>(0).report, "given up after 2 restarts"));
  }

  TEST_CASE("a rank that its node restarts is reported, and does not stop the others") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_rank;
    o.max_restarts = 2;
    desk d(o);
    d.all_join();
    CHECK(d.last<start_ranks>(1).on_failure == failure_policy::restart_rank);
    d.c.on(1, rank_failed{exited(1, 9, 3ms), true, 1});
    CHECK(d.said == "tutti-run: rank 1 exited with code 9 (pid 101); it is started anew (1 of 2)\n");
    for (int node = 0; node < 3; ++node) CHECK(std::holds_alternative<start_ranks>(d.sent[node].back()));
    // All restarts are used.
    d.c.on(1, rank_failed{exited(1, 9, 3ms), true, 0});
    CHECK(d.last<stop_ranks>(0).signal == SIGTERM);
    for (int node = 2; node >= 0; --node)
      d.ends(node, node == 1 ? std::vector{exited(1, 9, 3ms)} : std::vector<outcome>{});
    CHECK(d.last<job_over>(0).exit_code == 9);
  }

  TEST_CASE("a rank is not started anew after one of another node has finished") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_rank;
    o.max_restarts = 2;
    desk d(o);
    d.all_join();
    d.c.on(2, process_ended{4, 0, true, false});
    d.c.on(1, process_ended{1, 0, false, true});
    d.c.on(1, rank_failed{exited(1, 9, 3ms), true, 1});
    CHECK(contains(d.said, "rank 1 is not started anew: rank 4 has finished"));
    CHECK(contains(d.said, "--on-failure restart-all"));
    for (int node = 0; node < 3; ++node) CHECK(d.last<stop_ranks>(node).signal == SIGTERM);
    outcome stopped = signalled(1, SIGTERM, 5ms);
    stopped.asked_with = SIGTERM;
    d.ends(1, {stopped});
    for (const int node : {0, 2}) d.ends(node, {});
    CHECK(d.last<job_over>(0).exit_code == 9);
    CHECK(contains(d.last<job_over>(0).report, "rank 1 failed first: it exited with code 9"));
  }

  TEST_CASE("no restart after a signal, a lost node, or a program that cannot be started") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_all;
    o.max_restarts = 2;
    for (int what = 0; what < 3; ++what) {
      desk d(o);
      d.all_join();
      outcome failure = exited(0, 127, 5ms);
      failure.exec_error = what == 2 ? ENOENT : 0;
      if (what == 0) d.c.on(0, stop_wanted{stop_wanted::reason::signal, SIGINT, {}});
      if (what == 1) d.c.lost(2, "gone");
      if (what == 2) d.c.on(0, rank_failed{failure, false});
      d.ends(0, {failure});
      d.ends(1, {});
      d.ends(2, {});
      CHECK(d.c.over());
      CHECK(d.stores == 1);
    }
  }

  TEST_CASE("restarts: a signal while the ranks of a failed start end is the end of the job") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_all;
    o.max_restarts = 2;
    for (const bool by_timeout : {false, true}) {
      desk d(o);
      d.all_join();
      d.c.on(0, rank_failed{exited(0, 4, 5ms), true});
      d.c.on(0, stop_wanted{
                    by_timeout ? stop_wanted::reason::timeout : stop_wanted::reason::signal, SIGTERM, {}});
      for (int node = 2; node >= 0; --node)
        d.ends(node, node == 0 ? std::vector{exited(0, 4, 5ms)} : std::vector<outcome>{});
      CHECK(d.c.over());
      CHECK(d.stores == 1);
      CHECK(d.last<job_over>(0).exit_code == (by_timeout ? 124 : 143));
    }
  }

  TEST_CASE("restarts: the second interrupt ends the start that has begun since the first") {
    options o = three_nodes();
    o.on_failure = failure_policy::restart_all;
    o.max_restarts = 2;
    desk d(o);
    d.all_join();
    d.c.on(0, kill_wanted{});
    CHECK(std::holds_alternative<kill_ranks>(d.sent[1].back()));
    for (int node = 2; node >= 0; --node) d.ends(node, {});
    CHECK(d.c.over());
    CHECK(d.stores == 1);
    CHECK(d.last<job_over>(0).exit_code == 130);
  }

  TEST_CASE("a store that cannot be opened ends the job with a message") {
    desk d(three_nodes());
    d.no_store = true;
    d.all_join();
    CHECK(d.last<job_over>(1).exit_code == 1);
    CHECK(d.last<job_over>(1).report == "tutti-run: no port\n");
  }

  TEST_CASE("a stopped rank is reported to nodes that cannot detect it") {
    desk d(three_nodes());
    d.all_join();
    d.c.on(1, rank_stopped{2, 77, true});
    for (const int node : {0, 2}) {
      CHECK(d.last<rank_stopped>(node).rank == 2);
      CHECK(d.last<rank_stopped>(node).pid == 77);
      CHECK(d.last<rank_stopped>(node).stopped);
    }
    CHECK(std::holds_alternative<start_ranks>(d.sent[1].back()));
    d.ends(0, {});
    d.c.on(1, rank_stopped{2, 77, false});
    CHECK(d.last<rank_stopped>(0).stopped);
    CHECK_FALSE(d.last<rank_stopped>(2).stopped);
  }

  TEST_CASE("continue: a failure and a lost node are reported, and the others continue") {
    options o = three_nodes();
    o.on_failure = failure_policy::go_on;
    desk d(o);
    d.all_join();
    d.c.on(1, rank_failed{exited(1, 9, 5ms), true});
    CHECK(d.said == "tutti-run: rank 1 exited with code 9 (pid 101); the others go on\n");
    d.c.lost(2, "gone");
    CHECK(contains(d.said, "node 2 (ranks 3-5 on host2) was lost: gone; the others go on\n"));
    CHECK(std::holds_alternative<start_ranks>(d.sent[0].back()));
    d.ends(1, {exited(1, 9, 5ms), exited(2, 0, 9ms)});
    d.ends(0, {exited(0, 0, 10ms)});
    CHECK(d.last<job_over>(0).exit_code == 9);
  }

  TEST_CASE("elastic nodes: one starts when it comes, and continues without the others") {
    options o = three_nodes();
    o.elastic = true;
    o.least_nodes = 2;
    o.on_failure = failure_policy::restart_rank;
    desk d(o);
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(d.c.free_number() == 1);
    CHECK(d.sent.empty());
    CHECK(!d.c.join({3, 1, 2, "host1", 11}));
    CHECK(d.last<start_ranks>(1).first_rank == 1);
    CHECK(!d.last<start_ranks>(1).newcomer);
    CHECK(d.c.free_number() == 2);
    CHECK(!d.c.join({3, 2, 1, "host2", 12}));
    CHECK(d.c.free_number() == -1);
    CHECK(d.last<start_ranks>(2).first_rank == 3);
    CHECK(d.last<start_ranks>(2).newcomer);
    CHECK(d.sent[0].size() == 1);
    CHECK(contains(*d.c.join({3, -1, 1, "host3", 13}), "allows 3 nodes, and as many are there"));

    d.c.lost(1, "gone");
    CHECK(contains(d.said, "node 1 (ranks 1-2 on host1) was lost: gone; the others go on\n"));
    CHECK(!d.c.join({3, 1, 2, "host4", 14}));  // replaces it
    CHECK(d.last<start_ranks>(1).first_rank == 4);

    stop_wanted drained;
    drained.signal = SIGTERM;
    d.c.on(2, drained);
    CHECK(contains(d.said, "node 2 (rank 3 on host2) leaves: it was stopped by SIGTERM; the others go on\n"));
    CHECK(d.sent[0].size() == 1);
    d.ends(2, {signalled(3, SIGTERM, 5ms)});
    CHECK(d.last<job_over>(2).exit_code == 128 + SIGTERM);
    CHECK(d.c.free_number() == -1);  // its connection may still be there
    d.c.lost(2, "closed");
    CHECK(d.c.free_number() == 2);
    CHECK(!contains(d.said, "closed"));

    d.c.on(1, rank_failed{exited(4, 7, 9ms), true, 0});
    CHECK(contains(d.said, "node 1 (ranks 4-5 on host4) leaves: rank 4 exited with code 7 (pid 104)"));
    d.ends(1, {exited(4, 7, 9ms)});
    CHECK(d.last<job_over>(1).exit_code == 7);
    d.ends(0, {exited(0, 0, 10ms)});
    CHECK(d.last<job_over>(0).exit_code == 0);
    CHECK(d.last<job_over>(0).report.empty());
  }

  TEST_CASE("elastic nodes: one that leaves by itself says why, and ends with that code") {
    struct {
      stop_wanted wanted;
      int code;
      const char* why;
    } const ways[] = {
        {{stop_wanted::reason::timeout, 0, {}}, 124, "it has run longer than its --timeout"},
        {{stop_wanted::reason::reader_gone, 0, {}}, 128 + SIGPIPE, "nobody reads its output any more"},
        {{stop_wanted::reason::cannot_start, 0, "no rank can start"}, 1, "no rank can start"},
        {{stop_wanted::reason::signal, SIGHUP, {}}, 128 + SIGHUP, "it was stopped by SIGHUP"}};
    for (const auto& way : ways) {
      options o = three_nodes();
      o.elastic = true;
      desk d(o);
      for (const int node : {0, 1}) CHECK(!d.c.join({3, node, 1, "host", 10 + node}));
      d.c.on(1, way.wanted);
      d.ends(1, {});
      CHECK(contains(d.said, "leaves: " + std::string(way.why) + "; the others go on\n"));
      CHECK(d.last<job_over>(1).exit_code == way.code);
      CHECK(d.last<job_over>(1).report ==
            "tutti-run: this node has left the job: " + std::string(way.why) + "; the others go on\n");
      CHECK(d.c.running());
    }
  }

  TEST_CASE("elastic nodes: a coordinator takes over, with the nodes that are left") {
    options o = three_nodes();
    o.elastic = true;
    o.on_failure = failure_policy::restart_rank;
    desk d(o);
    const auto with_ranks = [](int node, int first_rank) {
      hello who{3, node, 2, "host" + std::to_string(node), 10 + node};
      who.first_rank = first_rank;
      who.run.resize(2);
      return who;
    };
    d.c.take_over(with_ranks(2, 6));
    CHECK(!d.c.join(with_ranks(1, 2)));
    CHECK(d.sent.empty());
    CHECK(d.c.free_number() == 0);
    hello newcomer{3, 0, 1, "host3", 13};
    newcomer.first_rank = 9;  // 8 was drawn by one that has not come
    CHECK(!d.c.join(newcomer));
    CHECK(d.last<start_ranks>(0).first_rank == 9);
    CHECK(d.last<start_ranks>(0).world_size == 10);
    CHECK(d.last<start_ranks>(0).newcomer);
    CHECK(d.c.describe_node(1) == "node 1 (ranks 2-3 on host1)");

    stop_wanted drained;
    drained.signal = SIGTERM;
    d.c.on(0, drained);  // any node but its own may go
    CHECK(contains(d.said, "node 0 (rank 9 on host3) leaves"));
    d.c.lost(1, "gone");
    CHECK(contains(d.said, "node 1 (ranks 2-3 on host1) was lost: gone; the others go on"));
    d.ends(0, {signalled(9, SIGTERM, 1ms)});
    d.ends(2, {exited(6, 0, 1ms), exited(7, 0, 1ms)});
    CHECK(d.last<job_over>(2).exit_code == 0);
  }

  TEST_CASE("elastic nodes: one that goes before the start is waited for no longer, and its place is free") {
    options o = three_nodes();
    o.elastic = true;
    o.least_nodes = 3;
    desk d(o);
    for (const int node : {0, 1}) CHECK(!d.c.join({3, node, 1, "host", 10 + node}));
    d.c.on(1, stop_wanted{stop_wanted::reason::signal, SIGTERM, {}});
    CHECK(d.last<job_over>(1).exit_code == 128 + SIGTERM);
    CHECK(contains(d.said, "node 1 (host) leaves: it was stopped by SIGTERM; the others go on\n"));
    CHECK(!d.c.join({3, 2, 1, "host2", 12}));
    CHECK(d.c.joining());
    CHECK(d.c.missing() == std::vector<int>{1});
    d.c.lost(1, "closed");
    CHECK(!contains(d.said, "closed"));
    d.c.lost(2, "gone");
    CHECK(contains(d.said, "node 2 (host2) was lost: gone; the others go on\n"));
    for (const int node : {1, 2}) CHECK(!d.c.join({3, node, 1, "host", 20 + node}));
    for (const int node : {0, 1, 2}) CHECK(d.last<start_ranks>(node).world_size == 3);
  }

  TEST_CASE("elastic nodes: one that has just left is not started with the others") {
    options o = three_nodes();
    o.elastic = true;
    o.least_nodes = 2;
    o.nodes = 3;
    desk d(o);
    CHECK(!d.c.join({3, 1, 1, "host1", 11}));
    d.c.on(1, stop_wanted{stop_wanted::reason::signal, SIGTERM, {}});
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(!d.c.join({3, 2, 1, "host2", 12}));
    CHECK(d.last<start_ranks>(2).world_size == 2);
    CHECK(std::holds_alternative<job_over>(d.sent[1].back()));
    for (const int node : {0, 2}) d.ends(node, {});
    CHECK(d.c.over());
  }

  TEST_CASE("elastic nodes: the ends of a node that came later count from the start of the job") {
    options o = three_nodes();
    o.elastic = true;
    desk d(o);
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    const auto later = std::chrono::steady_clock::now() + 5ms;
    while (std::chrono::steady_clock::now() < later) continue;
    CHECK(!d.c.join({3, 1, 1, "host1", 11}));
    d.c.on(0, rank_failed{exited(0, 7, 4ms), false});
    d.ends(0, {exited(0, 7, 4ms)});
    d.ends(1, {exited(1, 1, 1ms)});
    CHECK(d.last<job_over>(0).exit_code == 7);
    CHECK(contains(d.last<job_over>(0).report, "rank 0 failed first: it exited with code 7"));
  }

  TEST_CASE("elastic nodes: a node whose ranks have ended leaves at once when it is told to") {
    options o = three_nodes();
    o.elastic = true;
    desk d(o);
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(!d.c.join({3, 1, 1, "host1", 11}));
    d.ends(1, {exited(1, 0, 5ms)});
    CHECK(std::holds_alternative<start_ranks>(d.sent[1].back()));
    d.c.on(1, stop_wanted{stop_wanted::reason::signal, SIGTERM, {}});
    CHECK(d.last<job_over>(1).exit_code == 128 + SIGTERM);
    CHECK(!d.c.over());
  }

  TEST_CASE("elastic nodes: without a quorum the job is stopped with the reason") {
    options o = three_nodes();
    o.elastic = true;
    desk d(o);
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    d.c.no_further_world("no quorum: for a reason");
    CHECK(d.last<stop_ranks>(0).signal == SIGTERM);
    d.c.no_further_world("another one");
    outcome stopped = signalled(0, SIGTERM, 12ms);
    stopped.asked_with = SIGTERM;
    d.ends(0, {stopped});
    CHECK(d.last<job_over>(0).exit_code == 1);
    CHECK(d.last<job_over>(0).report == "tutti-run: the job was stopped: no quorum: for a reason\n");
  }

  TEST_CASE("elastic nodes: the end of node 0 ends the job, and so does the end of its work") {
    options o = three_nodes();
    o.elastic = true;
    desk d(o);
    CHECK(!d.c.join({3, 0, 1, "host0", 10}));
    CHECK(!d.c.join({3, 1, 1, "host1", 11}));
    d.c.work_done();
    CHECK(d.last<stop_ranks>(1).signal == SIGTERM);
    d.ends(0, {exited(0, 0, 10ms)});
    outcome stopped = signalled(1, SIGTERM, 12ms);
    stopped.asked_with = SIGTERM;
    d.ends(1, {stopped});
    for (const int node : {0, 1}) CHECK(d.last<job_over>(node).exit_code == 0);
  }
}
