// SPDX-License-Identifier: Apache-2.0
// The flight recorder: what it keeps, what it drops, and that readers never see partial records.
#include "flight/recorder.hpp"

#include "flight/snapshot.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace tutti::flight;

namespace {

struct memory {
  explicit memory(std::size_t operations = least_operations)
      : s{operations}, words(s.bytes() / sizeof(line)), view(words.data(), s) {}
  struct alignas(64) line {
    std::uint64_t word[8] = {};
  };
  shape s;
  std::vector<line> words;
  recording_view view;
};

operation_facts message(int peer, int tag) {
  operation_facts facts;
  facts.kind = 1;
  facts.peer = peer;
  facts.tag = tag;
  facts.bytes = static_cast<std::uint64_t>(tag);
  facts.file = "folder/program.cpp";
  facts.line = 7;
  return facts;
}

}  // namespace

TEST_CASE("recorder: started operations are pending, ended ones are recent, newest first") {
  memory m;
  recorder r(m.view);
  r.joining(3, 8);
  r.joined(99);
  const std::size_t place = r.open_communicator(16, 2, 5, "world / split");
  r.called(place, 41);
  const handle first = r.begin(message(1, 10));
  const handle second = r.begin(message(2, 20));
  r.begin(message(4, 30));
  r.waits_for(second, 6);
  r.moved(second, 5);
  r.moved(second, 6);
  rank_snapshot now = read(m.view, 10);
  CHECK(now.rank == 3);
  CHECK(m.view.head().world_size() == 8);
  CHECK(now.world == 99);
  CHECK(now.at == phase::member);
  REQUIRE(now.pending.size() == 3);
  CHECK(now.pending[0].tag == 10);
  CHECK(now.pending[0].where() == "program.cpp:7");
  CHECK(now.pending[0].waits_for == -1);
  CHECK(now.pending[1].waits_for == 6);
  CHECK(now.pending[1].moved == 11);
  CHECK(now.pending[1].peer == 2);
  CHECK(now.pending[1].bytes == 20);
  REQUIRE(now.communicators.size() == 1);
  CHECK(now.communicators[0].id == 16);
  CHECK(now.communicators[0].rank == 2);
  CHECK(now.communicators[0].size == 5);
  CHECK(now.communicators[0].last == 41);
  CHECK(now.communicators[0].name == "world / split");

  r.end(first, state::done);
  r.end(second, state::failed);
  r.close_communicator(place);
  now = read(m.view, 1);
  CHECK(now.pending.size() == 1);
  REQUIRE(now.recent.size() == 1);
  CHECK(now.recent[0].tag == 20);
  CHECK(now.recent[0].how == state::failed);
  CHECK(now.recent[0].end_ns >= now.recent[0].start_ns);
  CHECK(m.view.head().started.load() == 3);
  CHECK(m.view.head().ended.load() == 2);
  CHECK(now.communicators.empty());
  CHECK(r.by_kind()[1].calls == 3);
}

TEST_CASE("recorder: thousands of short operations do not overwrite one that stays pending") {
  memory m;
  recorder r(m.view);
  const handle old = r.begin(message(1, 1));
  const handle other = r.begin(message(1, 2));
  for (int i = 0; i < 5000; ++i) r.note(message(2, 100 + i), state::done);
  rank_snapshot now = read(m.view, 1000);
  REQUIRE(now.pending.size() == 2);
  CHECK(now.pending[0].tag == 1);
  CHECK(now.pending[1].tag == 2);
  CHECK(now.recent.size() == least_operations - 2);
  CHECK(now.recent[0].tag == 5099);
  r.end(old, state::done);
  r.end(other, state::done);
  CHECK(read(m.view, 1000).pending.empty());
}

TEST_CASE("recorder: pending operations beyond its slots drop the oldest, whose ends do no harm") {
  memory m;
  recorder r(m.view);
  std::vector<handle> all;
  for (int i = 0; i < 200; ++i) all.push_back(r.begin(message(0, i)));
  CHECK(read(m.view, 0).pending.size() == least_operations);
  CHECK(read(m.view, 0).pending.back().tag == 199);
  for (const handle h : all) r.end(h, state::done);
  const rank_snapshot now = read(m.view, 1000);
  CHECK(now.pending.empty());
  CHECK(m.view.head().started.load() == 200);
  CHECK(m.view.head().ended.load() == 200);
}

TEST_CASE("recorder: the names of files and spans have one number each") {
  memory m;
  recorder r(m.view);
  const std::string copy = std::string("a span") + "";
  const std::uint32_t span = r.text_of(std::string_view("a span"));
  CHECK(r.text_of(std::string_view(copy)) == span);
  CHECK(r.text_of(std::string_view("another span")) != span);
  static const char file[] = "one.cpp";
  const std::uint32_t number = r.text_of(file);
  CHECK(r.text_of(file) == number);
  CHECK(std::string(m.view.text_entries()[number].text) == "one.cpp");
  const std::string longer(500, 'x');
  CHECK(r.text_of(std::string_view(longer)) < texts);
  for (int i = 0; i < 2000; ++i) r.text_of(std::string_view("span " + std::to_string(i)));
  CHECK(r.text_of(std::string_view("beyond all")) == no_text);
  CHECK(r.text_of(file) == number);
}

TEST_CASE("recorder: spans come from any thread") {
  memory m(4096);
  recorder r(m.view);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&r, t] {
      for (std::uint32_t i = 0; i < 100; ++i) {
        const handle h = r.begin_span(kind_span, no_text, static_cast<std::uint32_t>(t), r.now());
        if (i % 2 == 0) r.end_span(h, state::done, 1, 2);
      }
    });
  for (std::thread& t : threads) t.join();
  int pending = 0, done = 0;
  const time_map times(m.view.head());
  for (std::size_t i = 0; i < m.s.spans(); ++i) {
    operation_snapshot o;
    if (!read(m.view.spans()[i], o, m.view, times)) continue;
    (o.how == state::pending ? pending : done)++;
    CHECK(o.line < 4);
  }
  CHECK(pending == 200);
  CHECK(done == 200);
}

TEST_CASE("recorder: a reader sees an operation before or after a change, never a mixture") {
  memory m;
  recorder r(m.view);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (int i = 1; !over.load(std::memory_order_relaxed); i = i % 1'000'000 + 1) {
      operation_facts facts = message(i, i);
      facts.line = static_cast<std::uint32_t>(i);
      facts.sequence = static_cast<std::uint32_t>(i);
      r.note(facts, state::done);
    }
  });
  const time_map times(m.view.head());
  int seen = 0;
  bool whole = true;
  for (int round = 0; round < 2000 || seen < 1000; ++round)
    for (std::size_t i = 0; i < m.s.operations; ++i) {
      operation_snapshot o;
      if (!read(m.view.operations()[i], o, m.view, times)) continue;
      ++seen;
      const auto n = static_cast<std::uint64_t>(o.peer);
      whole &= o.tag == o.peer && o.bytes == n && o.line == n && o.sequence == n;
    }
  over = true;
  writer.join();
  CHECK(whole);
}

TEST_CASE("recorder: arbitrary memory is read without harm") {
  memory m;
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    for (auto& l : m.words)
      for (std::uint64_t& w : l.word) w = random();
    m.view.head().ready.store(magic);
    if (round % 2 == 0)
      for (std::size_t i = 0; i < m.s.operations; ++i)
        m.view.operations()[i].mark.store(random() << 8 | static_cast<std::uint64_t>(state::pending));
    const rank_snapshot r = read(m.view, 100);
    CHECK(r.pending.size() <= 64);
  }
}

TEST_CASE("recorder: a given clock determines the recorded times") {
  static std::uint64_t time = 1'000'000'000;
  memory m;
  recorder r(m.view, [](const void*) noexcept { return time; });
  r.trace(true);
  time += 500;
  r.end(r.begin(message(0, 0)), state::done);
  const rank_snapshot now = read(m.view, 1);
  REQUIRE(now.recent.size() == 1);
  CHECK(now.recent[0].start_ns == 1'000'000'500);
}
