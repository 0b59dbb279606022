// SPDX-License-Identifier: Apache-2.0
// From the records of ranks to the text that says who waits for whom.
#include "flight/explanation.hpp"

#include "support/contains.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <tutti/detail/operation_state.hpp>
#include <tutti/status.hpp>
#include <vector>

using namespace tutti::flight;
using tutti::detail::operation_kind;

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t now = 1000 * second;

using tutti::test::contains;

rank_snapshot rank(int number, int size, std::uint32_t last = 0) {
  rank_snapshot r;
  r.rank = number;
  r.at = phase::member;
  r.thread = tutti::base::process_state::sleeps;
  r.now_ns = now;
  r.turned_ns = now - 5 * second;
  r.asleep_ns = now - 5 * second;
  communicator_snapshot world;
  world.rank = number;
  world.size = size;
  world.last = last;
  world.name = "world";
  r.communicators.push_back(world);
  return r;
}

operation_snapshot operation(operation_kind kind, int peer, int tag = tutti::any_tag) {
  operation_snapshot o;
  o.kind = static_cast<std::uint8_t>(kind);
  o.how = state::pending;
  o.start_ns = now - 2 * second;
  o.peer = peer;
  o.tag = tag;
  o.bytes = 2048;
  o.text = "/home/me/train.cpp";
  o.line = 81;
  return o;
}

operation_snapshot collective(operation_kind kind, std::uint32_t sequence) {
  operation_snapshot o = operation(kind, -1);
  o.sequence = sequence;
  return o;
}

bool has_circle(const std::vector<rank_snapshot>& ranks) { return contains(explain(ranks), "a circle: "); }

}  // namespace

TEST_CASE("explanation: a circle through messages and a collective") {
  std::vector<rank_snapshot> ranks{rank(0, 3, 5), rank(1, 3, 4), rank(2, 3, 5)};
  ranks[0].pending = {collective(operation_kind::all_reduce, 5)};
  ranks[1].pending = {operation(operation_kind::receive, 2, 9)};
  ranks[2].pending = {collective(operation_kind::all_reduce, 5)};
  const std::string text = explain(ranks);
  CHECK(text.find("a circle: ") == text.rfind("a circle: "));
  CHECK(text.find("has not been called") == text.rfind("has not been called"));
  CHECK(contains(text, "rank 1 waits 2.0 s in recv from rank 2, tag 9 on world, 2 KiB, at train.cpp:81\n"));
  CHECK(contains(
      text, "ranks 0, 2: each waits 2.0 s in all_reduce #5 on world, 2 KiB, at train.cpp:81: for rank 1\n"));
  CHECK(contains(
      text,
      "all_reduce #5 on world has not been called by rank 1 (the last that rank 1 called there was #4)\n"));
  CHECK(contains(
      text,
      "a circle: rank 1 waits for 2 (recv at train.cpp:81), 2 for 1 (all_reduce at train.cpp:81): none "
      "of them can go on\n"));
}

TEST_CASE("explanation: operations on windows wait for their rank, and signals for any") {
  std::vector<rank_snapshot> ranks{rank(0, 3), rank(1, 3), rank(2, 3)};
  ranks[0].pending = {operation(operation_kind::flush, 1)};
  ranks[1].pending = {operation(operation_kind::fetch_add, 0, 3)};
  ranks[2].pending = {operation(operation_kind::wait_signal, tutti::any_source, 7)};
  ranks[2].pending[0].bytes = 0;
  CHECK(has_circle(ranks));
  const std::string text = explain(ranks);
  CHECK(contains(text, "rank 1 waits 2.0 s in fetch_add at rank 0, signal 3 on world"));
  CHECK(contains(text, "rank 2 waits 2.0 s in wait_signal, signal 7 on world, at train.cpp:81\n"));
}

TEST_CASE("explanation: a matched send and receive are no circle") {
  std::vector<rank_snapshot> ranks{rank(0, 2), rank(1, 2)};
  ranks[0].pending = {operation(operation_kind::send, 1, 3)};
  ranks[1].pending = {operation(operation_kind::receive, 0, 3)};
  CHECK_FALSE(has_circle(ranks));
  CHECK(contains(explain(ranks), "in send to rank 1, tag 3 on world, 2 KiB, at train.cpp:81: on its way"));
  ranks[1].pending[0].peer = tutti::any_source;
  ranks[1].pending[0].tag = tutti::any_tag;
  CHECK_FALSE(has_circle(ranks));
  ranks[1].pending[0].tag = 4;
  ranks[1].pending[0].peer = 0;
  CHECK(contains(explain(ranks),
                 "a circle: rank 0 waits for 1 (send at train.cpp:81), 1 for 0 (recv at train.cpp:81)"));
}

TEST_CASE("explanation: a rank that waits for a stopped, computing or dead rank is in no circle with it") {
  for (const int how : {0, 1, 2, 3}) {
    std::vector<rank_snapshot> ranks{rank(0, 2), rank(1, 2)};
    ranks[0].pending = {operation(operation_kind::receive, 1)};
    ranks[1].pending = {operation(operation_kind::receive, 0)};
    std::string words;
    if (how == 0) {
      ranks[1].thread = tutti::base::process_state::stopped;
      words = "which is stopped (SIGSTOP";
    } else if (how == 1) {
      ranks[1].asleep_ns = 0;
      ranks[1].thread = tutti::base::process_state::runs;
      words = "which computes on its loop thread: the loop has not turned for 5.0 s";
    } else if (how == 2) {
      ranks[1].end = "was killed by SIGKILL (signal 9)";
      words = "which has gone: it was killed by SIGKILL (signal 9)";
    } else {
      ranks[1].compute_running = 1;
      words = "which waits 2.0 s in recv from rank 0";
    }
    const std::string text = explain(ranks);
    CAPTURE(text);
    CHECK_FALSE(contains(text, "a circle: "));
    CHECK(contains(text, "rank 0 waits for rank 1, " + words));
  }
}

TEST_CASE("explanation: nobody waits for those that have not called what only a hindered rank is in") {
  for (const int how : {0, 1, 2}) {
    std::vector<rank_snapshot> ranks{rank(0, 3, 5), rank(1, 3, 4), rank(2, 3, 4)};
    ranks[0].pending = {collective(operation_kind::all_reduce, 5)};
    if (how == 0)
      ranks[0].thread = tutti::base::process_state::stopped;
    else if (how == 1)
      ranks[0].compute_running = 1;
    else
      ranks[0].end = "was killed by SIGKILL (signal 9)";
    const std::string text = explain(ranks);
    CAPTURE(text);
    CHECK(contains(text, "all_reduce #5 on world has not been called by ranks 1-2"));
    CHECK_FALSE(contains(text, "wait for rank"));
  }
}

TEST_CASE("explanation: ranks of a communicator are named as ranks of the world") {
  std::vector<rank_snapshot> ranks{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (const int r : {1, 2}) {
    communicator_snapshot half;
    half.id = 9;
    half.rank = r - 1;
    half.size = 2;
    half.name = "half";
    ranks[static_cast<std::size_t>(r)].communicators.push_back(half);
  }
  operation_snapshot o = operation(operation_kind::receive, 1, 0);
  o.communicator = 9;
  ranks[1].pending = {o};
  CHECK(contains(explain(ranks), "in recv from rank 2, tag 0 on half"));
  ranks.pop_back();
  CHECK(contains(explain(ranks), "in recv from rank 1 of half, tag 0 on half"));
}

TEST_CASE("explanation: a collective that all have called waits for what its rank has recorded") {
  std::vector<rank_snapshot> ranks{rank(0, 2, 5), rank(1, 2, 5)};
  ranks[0].pending = {collective(operation_kind::barrier, 5)};
  ranks[0].pending[0].waits_for = 1;
  CHECK(contains(explain(ranks), "barrier #5 on world, 2 KiB, at train.cpp:81: for rank 1"));
  CHECK_FALSE(contains(explain(ranks), "has not been called"));
  // Both have called it: slow, but no deadlock.
  ranks[1].pending = {collective(operation_kind::barrier, 5)};
  ranks[1].pending[0].waits_for = 0;
  CHECK_FALSE(has_circle(ranks));
  CHECK_FALSE(contains(explain(ranks), "waits for rank"));
  CHECK_FALSE(contains(explain(ranks), "wait for rank"));
  // One was stopped in it, so the other waits for that rank.
  ranks[1].thread = tutti::base::process_state::stopped;
  CHECK(contains(explain(ranks), "rank 0 waits for rank 1, which is stopped (SIGSTOP"));
  CHECK_FALSE(has_circle(ranks));
}

TEST_CASE("explanation: a shrink waits for what its rank has recorded, not for one that has left") {
  std::vector<rank_snapshot> ranks{rank(0, 4, 5), rank(1, 4, 5), rank(2, 4, 5), rank(3, 4, 5)};
  for (const int r : {0, 1}) {
    ranks[static_cast<std::size_t>(r)].pending = {operation(operation_kind::shrink, -1)};
    ranks[static_cast<std::size_t>(r)].pending[0].waits_for = 2;
  }
  ranks[2].pending = {operation(operation_kind::receive, 0, 5)};
  ranks[3].at = phase::left;
  ranks[3].communicators.clear();
  const std::string text = explain(ranks);
  CHECK_FALSE(contains(text, "has not been called"));
  CHECK(contains(text, "shrink on world, 2 KiB, at train.cpp:81: for rank 2\n"));
  CHECK_FALSE(contains(text, "wait for rank 3"));
  // The receive of rank 2 has no number either.
  CHECK(contains(text,
                 "a circle: rank 0 waits for 2 (shrink at train.cpp:81), 2 for 0 (recv at train.cpp:81)"));
}

TEST_CASE("explanation: a cancelled operation has not failed") {
  std::vector<rank_snapshot> ranks{rank(0, 2)};
  operation_snapshot over = operation(operation_kind::receive, 1, 5);
  over.how = state::cancelled;
  over.end_ns = now - second;
  ranks[0].recent = {over};
  CHECK(contains(explain(ranks), "which was cancelled 1.0 s ago"));
  CHECK(contains(last_operations(ranks[0], 5, ""), ": was cancelled 1.0 s before"));
}

TEST_CASE("explanation: sequence numbers wrap around after 2^31") {
  std::vector<rank_snapshot> ranks{rank(0, 2, 1), rank(1, 2, 0x7fffffff)};
  ranks[0].pending = {collective(operation_kind::barrier, 1)};
  CHECK(contains(explain(ranks), "barrier #1 on world has not been called by rank 1 ("));
}

TEST_CASE("explanation: a thousand ranks in one situation are one line") {
  std::vector<rank_snapshot> ranks;
  for (int r = 0; r < 1000; ++r) {
    ranks.push_back(rank(r, 1000, r == 500 ? 6 : 7));
    if (r != 500) ranks.back().pending = {collective(operation_kind::all_gather, 7)};
    ranks.back().pid = 10'000 + r;
  }
  const std::string text = explain(ranks);
  CHECK(std::count(text.begin(), text.end(), '\n') < 8);
  CHECK(contains(text, "ranks 0-499, 501-999: each waits 2.0 s in all_gather #7"));
  CHECK(contains(text, "rank 500 (pid 10500) waits for no operation of tutti's"));
}

TEST_CASE("explanation: half of very many ranks wait for the others") {
  constexpr int size = 1 << 14;
  std::vector<rank_snapshot> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.push_back(rank(r, size, r % 2 == 0 ? 6 : 7));
    if (r % 2 != 0) ranks.back().pending = {collective(operation_kind::all_gather, 7)};
  }
  const auto begun = std::chrono::steady_clock::now();
  const std::string text = explain(ranks);
  // An edge for each pair would take a minute.
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(8));
  CHECK(contains(text, ", 16383 wait for rank 0, which waits for no operation of tutti's\n"));
  CHECK(contains(text, ", 16383 wait for rank 6, which waits"));
  CHECK_FALSE(contains(text, "wait for rank 8, which waits"));
}

TEST_CASE("explanation: ranks that wait for two collectives and a message name each rank's waiters") {
  // 0 waits for 1 and 2 in a collective, 1 for 3 in a message, 2 for nothing, 4 for 0.
  std::vector<rank_snapshot> ranks{rank(0, 5, 5), rank(1, 5, 4), rank(2, 5, 4), rank(3, 5, 5), rank(4, 5, 5)};
  ranks[0].pending = {collective(operation_kind::barrier, 5)};
  ranks[1].pending = {operation(operation_kind::receive, 3)};
  ranks[4].pending = {operation(operation_kind::send, 0)};
  const std::string text = explain(ranks);
  CHECK(contains(text, "ranks 0-1, 4 wait for rank 3, which waits for no operation"));
  CHECK(contains(text, "ranks 0, 4 wait for rank 2, which waits for no operation"));
  CHECK(text.find("wait for rank 3") < text.find("wait for rank 2"));
  CHECK_FALSE(has_circle(ranks));
}

TEST_CASE("explanation: the last operations of a rank, the newest first") {
  rank_snapshot r = rank(1, 2);
  r.pending = {operation(operation_kind::receive, 0, 5)};
  operation_snapshot over = collective(operation_kind::all_reduce, 40);
  over.how = state::done;
  over.end_ns = now - second / 2;
  r.recent = {over};
  CHECK(last_operations(r, 5, "> ") ==
        "> recv from rank 0, tag 5 on world, 2 KiB, at train.cpp:81: begun 2.0 s before, never ended\n"
        "> all_reduce #40 on world, 2 KiB, at train.cpp:81: ended 500 ms before\n");
  CHECK(last_operations(rank_snapshot{}, 5, "").empty());
}

TEST_CASE("explanation: times and sizes as text") {
  CHECK(seconds_text(1'500) == "1.5 us");
  CHECK(seconds_text(350'000'000) == "350 ms");
  CHECK(seconds_text(12'100'000'000) == "12.1 s");
  CHECK(bytes_text(1) == "1 byte");
  CHECK(bytes_text(1023) == "1023 bytes");
  CHECK(bytes_text(3 << 19) == "1.5 MiB");
}
