// SPDX-License-Identifier: Apache-2.0
#include "launch/node_messages.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <random>
#include <tutti/error.hpp>

using namespace tutti::launch;
using namespace std::chrono_literals;

namespace {

outcome an_end() {
  outcome end;
  end.rank = 3;
  end.pid = 1234;
  end.signal = SIGSEGV;
  end.core_dumped = true;
  end.after = 1500ms;
  end.asked_with = SIGTERM;
  end.thrown = outcome::exception::own;
  end.thrown_after = 1400us;
  return end;
}

start_ranks a_plan() {
  start_ranks p;
  p.job_id = "0123456789abcdef";
  p.restart_count = 2;
  p.max_restarts = 5;
  p.world_size = 7;
  p.first_rank = 4;
  p.ports = {65535, 29500};
  p.on_failure = failure_policy::restart_all;
  p.grace = 250ms;
  p.least_nodes = 3;
  p.quorum = tutti::bootstrap::quorum::majority;
  p.notice = "tutti-run: again\n";
  return p;
}

hello a_survivor() {
  hello who{2, 1, 8, "box", 77};
  who.id = "0123";
  who.first_rank = 4;
  who.run = {{2, false, true}, {}};
  return who;
}

records_told some_records() {
  records_told told;
  tutti::flight::rank_snapshot r;
  r.rank = 5;
  r.pid = 99;
  r.at = tutti::flight::phase::member;
  r.thread = tutti::base::process_state::stopped;
  r.now_ns = 10'000;
  r.host = "box";
  r.end = "was killed";
  tutti::flight::operation_snapshot o;
  o.number = 12;
  o.how = tutti::flight::state::pending;
  o.sequence = 41;
  o.peer = -1;
  o.waits_for = 2;
  o.text = "train.cpp";
  o.line = 81;
  r.pending = {o, o};
  r.recent = {o};
  r.doing = {o};
  tutti::flight::communicator_snapshot c;
  c.id = 16;
  c.last = 40;
  c.failed = true;
  c.name = "half";
  r.communicators = {c};
  told.ranks = {r, tutti::flight::rank_snapshot{}};
  told.last = false;
  return told;
}

// One message of each kind.
std::vector<std::string> messages() {
  ranks_ended ended;
  ended.ends = {an_end(), outcome{}};
  ended.last_lines = {"oh", "", "no"};
  ended.last_operations = "recv from rank 0\n";
  return {encode(a_survivor()),
          encode(command(a_plan())),
          encode(command(stop_ranks{SIGTERM})),
          encode(command(kill_ranks{})),
          encode(command(job_over{3, "done\n"})),
          encode(event(rank_failed{an_end(), true, 0})),
          encode(event(stop_wanted{stop_wanted::reason::cannot_start, 0, "why"})),
          encode(event(kill_wanted{})),
          encode(event(ended)),
          encode(command(tell_records{})),
          encode(command(rank_stopped{5, 1234, true})),
          encode(event(rank_stopped{5, 1234, false})),
          encode(command(clock_told{5, 7})),
          encode(event(explanation_wanted{})),
          encode(event(clock_asked{5})),
          encode(event(process_ended{7, 2, true, true})),
          encode(event(some_records()))};
}

void decode_all(const std::string& text) {
  for (const auto& decode : {+[](const std::string& t) { static_cast<void>(decode_hello(t)); },
                             +[](const std::string& t) { static_cast<void>(decode_command(t)); },
                             +[](const std::string& t) { static_cast<void>(decode_event(t)); }}) {
    try {
      decode(text);
    } catch (const tutti::error& e) {
      REQUIRE(e.code() == tutti::errc::protocol);
    }
  }
}

}  // namespace

TEST_SUITE("launch/node_messages") {
  TEST_CASE("messages survive the round trip") {
    const hello who = decode_hello(encode(a_survivor()));
    CHECK(who.nodes == 2);
    CHECK(who.node == 1);
    CHECK(who.ranks == 8);
    CHECK(who.host == "box");
    CHECK(who.pid == 77);
    CHECK(who.id == "0123");
    CHECK(who.first_rank == 4);
    REQUIRE(who.run.size() == 2);
    CHECK(who.run[0].start == 2);
    CHECK(!who.run[0].runs);
    CHECK(who.run[0].well);
    CHECK(who.run[1].runs);

    const start_ranks p = std::get<start_ranks>(decode_command(encode(command(a_plan()))));
    CHECK(p.job_id == "0123456789abcdef");
    CHECK(p.restart_count == 2);
    CHECK(p.max_restarts == 5);
    CHECK(p.world_size == 7);
    CHECK(p.first_rank == 4);
    CHECK(p.ports.store == 65535);
    CHECK(p.ports.master == 29500);
    CHECK(p.on_failure == failure_policy::restart_all);
    CHECK(p.grace == 250ms);
    CHECK(p.least_nodes == 3);
    CHECK(p.quorum == tutti::bootstrap::quorum::majority);
    CHECK(p.notice == "tutti-run: again\n");

    CHECK(std::get<stop_ranks>(decode_command(encode(command(stop_ranks{SIGHUP})))).signal == SIGHUP);
    const job_over over = std::get<job_over>(decode_command(encode(command(job_over{137, "x"}))));
    CHECK(over.exit_code == 137);
    CHECK(over.report == "x");

    const rank_failed failed =
        std::get<rank_failed>(decode_event(encode(event(rank_failed{an_end(), true, 2}))));
    CHECK(failed.others_run);
    CHECK(failed.restart == 2);
    CHECK(failed.end.rank == 3);
    CHECK(failed.end.pid == 1234);
    CHECK(failed.end.signal == SIGSEGV);
    CHECK(failed.end.core_dumped);
    CHECK(failed.end.thrown == outcome::exception::own);
    CHECK(failed.end.thrown_after == 1400us);
    CHECK(failed.end.after == 1500ms);
    CHECK(failed.end.asked_with == SIGTERM);
    CHECK(!failed.end.killed);

    const process_ended gone =
        std::get<process_ended>(decode_event(encode(event(process_ended{7, 2, false, true}))));
    CHECK(gone.rank == 7);
    CHECK(gone.start == 2);
    CHECK(!gone.well);
    CHECK(gone.again);

    ranks_ended ended;
    ended.ends = {an_end(), outcome{}};
    ended.last_lines = {"oh", "", "no"};
    ended.last_operations = "recv from rank 0\n";
    const ranks_ended back = std::get<ranks_ended>(decode_event(encode(event(ended))));
    REQUIRE(back.ends.size() == 2);
    CHECK(back.ends[0].pid == 1234);
    CHECK(back.last_lines == ended.last_lines);
    CHECK(back.last_operations == ended.last_operations);

    const records_told told = std::get<records_told>(decode_event(encode(event(some_records()))));
    CHECK_FALSE(told.last);
    REQUIRE(told.ranks.size() == 2);
    const tutti::flight::rank_snapshot& r = told.ranks[0];
    CHECK(r.rank == 5);
    CHECK(r.pid == 99);
    CHECK(r.at == tutti::flight::phase::member);
    CHECK(r.thread == tutti::base::process_state::stopped);
    CHECK(r.host == "box");
    CHECK(r.end == "was killed");
    REQUIRE(r.pending.size() == 2);
    CHECK(r.pending[1].sequence == 41);
    CHECK(r.pending[1].waits_for == 2);
    CHECK(r.pending[1].where() == "train.cpp:81");
    CHECK(r.recent.size() == 1);
    CHECK(r.doing.size() == 1);
    REQUIRE(r.communicators.size() == 1);
    CHECK(r.communicators[0].last == 40);
    CHECK(r.communicators[0].failed);
    CHECK(r.communicators[0].name == "half");
    CHECK(std::get<clock_asked>(decode_event(encode(event(clock_asked{5})))).asked_ns == 5);
    const auto stopped = std::get<rank_stopped>(decode_command(encode(command(rank_stopped{5, 1234, true}))));
    CHECK(stopped.rank == 5);
    CHECK(stopped.pid == 1234);
    CHECK(stopped.stopped);
    CHECK(std::get<clock_told>(decode_command(encode(command(clock_told{5, 7})))).clock_ns == 7);
  }

  TEST_CASE("a truncated message, or one with extra bytes, is refused") {
    for (const std::string& whole : messages()) {
      for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) decode_all(whole.substr(0, bytes));
      CHECK_THROWS_AS(decode_command(whole + "x"), tutti::error);
      CHECK_THROWS_AS(decode_event(whole + "x"), tutti::error);
      CHECK_THROWS_AS(decode_hello(whole + "x"), tutti::error);
    }
  }

  TEST_CASE("damage is refused or harmless, whatever lengths it contains") {
    std::mt19937 random(7);
    for (const std::string& whole : messages())
      for (int round = 0; round < 500; ++round) {
        std::string damaged = whole;
        for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
        decode_all(damaged);
      }
  }

  TEST_CASE("the error for another version names it") {
    std::string message = encode(hello{2, 1, 8, "box", 77});
    message[0] = 99;
    CHECK_THROWS_WITH_AS(decode_hello(message), doctest::Contains("the same version"), tutti::error);
  }
}
