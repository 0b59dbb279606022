// SPDX-License-Identifier: Apache-2.0
// The writer of time lines: it writes each record once, counts the records that the ring has lost, and writes
// valid JSON for any names.
#include "flight/trace_writer.hpp"

#include "flight/recorder.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace tutti::flight;

namespace {

struct memory {
  struct alignas(64) line {
    std::uint64_t word[8] = {};
  };
  shape s{least_operations};
  std::vector<line> words = std::vector<line>(s.bytes() / sizeof(line));
  recording_view view{words.data(), s};
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

handle begin(recorder& r, std::uint32_t sequence) {
  operation_facts facts;
  facts.kind = 3;
  facts.sequence = sequence;
  facts.file = __FILE__;
  return r.begin(facts);
}

}  // namespace

TEST_CASE("trace writer: each operation is written once, whenever it ends") {
  const tutti::test::scratch_directory place;
  const std::string path = (place.path() / "trace.json").string();
  memory m;
  recorder r(m.view);
  r.trace(true);
  r.joined(1);
  trace_writer w(path, {}, 1 << 20);
  const handle early = begin(r, 1);
  for (std::uint32_t i = 2; i <= 301; ++i) {
    r.end(begin(r, i), state::done);
    if (i % 20 == 0) w.poll(0, m.view, "");
  }
  r.end(early, state::done);
  begin(r, 302);
  w.poll(0, m.view, "");
  w.finish();
  const std::string text = contents(path);
  CHECK(w.counts().lost == 0);
  CHECK(count(text, "\"ph\":\"X\"") == 302);
  for (const int i : {1, 2, 64, 65, 301, 302})
    CHECK(count(text, "\"sequence\":" + std::to_string(i) + ",") == 1);
  CHECK(count(text, "\"state\":\"never ended\"") == 1);
  CHECK(text.substr(text.size() - 3) == "\n]\n");
}

TEST_CASE("trace writer: operations overwritten before they were read are counted") {
  const tutti::test::scratch_directory place;
  memory m;
  recorder r(m.view);
  trace_writer w((place.path() / "trace.json").string(), {}, 1 << 20);
  for (std::uint32_t i = 1; i <= 1000; ++i) r.end(begin(r, i), state::done);
  w.poll(0, m.view, "");
  const std::uint64_t written = w.counts().events;
  CHECK(w.counts().lost >= 1000 - least_operations);
  CHECK(written > 0);
  r.end(begin(r, 1001), state::done);
  w.poll(0, m.view, "");
  CHECK(w.counts().events == written + 1);
}

TEST_CASE("trace writer: the last rank of a collective is known when all have arrived") {
  const tutti::test::scratch_directory place;
  static std::uint64_t time = 1'000'000'000;
  const auto clock = [](const void*) noexcept { return time; };
  memory first, second;
  recorder a(first.view, clock), b(second.view, clock);
  a.trace(true);
  b.trace(true);
  a.open_communicator(0, 0, 2, "world");
  b.open_communicator(0, 1, 2, "world");
  trace_writer w((place.path() / "trace.json").string(), {}, 1 << 20);
  for (std::uint32_t i = 1; i <= 10; ++i) {
    const handle x = begin(a, i);
    time += 5000;
    const handle y = begin(b, i);
    a.end(x, state::done);
    b.end(y, state::done);
    w.poll(0, first.view, "");
    w.poll(1, second.view, "");
  }
  CHECK(w.collectives() == 10);
  REQUIRE(w.last_to_come().size() == 1);
  CHECK(w.last_to_come().at(1).times == 10);
  CHECK(w.last_to_come().at(1).behind_ns == 50'000);
}

TEST_CASE("trace writer: ranks of one number, of several worlds, are apart") {
  const tutti::test::scratch_directory place;
  const std::string path = (place.path() / "trace.json").string();
  memory first, second;
  recorder a(first.view), b(second.view);
  for (recorder* r : {&a, &b}) {
    r->open_communicator(0, 0, 2, "world");
    for (std::uint32_t i = 1; i <= 10; ++i) r->end(begin(*r, i), state::done);
  }
  a.joined(1);
  b.joined(2);
  trace_writer w(path, {}, 1 << 20);
  for (int polls = 0; polls < 3; ++polls) {
    w.poll(0, first.view, "");
    w.poll(0, second.view, "");
  }
  w.over(first.view);
  w.finish();
  const std::string text = contents(path);
  CHECK(count(text, "\"ph\":\"X\"") == 20);
  CHECK(count(text, "\"name\":\"process_name\"") == 2);
  for (const std::string process : {"0", "1000000"})
    CHECK(count(text, "\"pid\":" + process + ",\"tid\":100,\"args\":{\"communicator\"") == 10);
  CHECK(w.collectives() == 0);  // one rank of each world has come
}

TEST_CASE("trace writer: a rank that gets another number goes on under its new name") {
  const tutti::test::scratch_directory place;
  const std::string path = (place.path() / "trace.json").string();
  memory m;
  recorder r(m.view);
  r.joined(1);
  trace_writer w(path, {}, 1 << 20);
  for (const int rank : {0, 3}) {
    r.end(begin(r, 1), state::done);
    w.poll(rank, m.view, "");
  }
  w.over(m.view);
  w.poll(5, m.view, "");
  w.finish();
  const std::string text = contents(path);
  CHECK(count(text, "\"ph\":\"X\"") == 2);
  CHECK(count(text, "\"name\":\"rank 0 (pid") == 1);
  CHECK(count(text, "\"name\":\"rank 3 (pid") == 1);
  CHECK(count(text, "\"name\":\"rank 5 (pid") == 0);
}

TEST_CASE("trace writer: a restarted job does not come late to collectives of its predecessor") {
  const tutti::test::scratch_directory place;
  static std::uint64_t time = 1'000'000'000;
  const auto clock = [](const void*) noexcept { return time; };
  trace_writer w((place.path() / "trace.json").string(), {}, 1 << 20);
  memory first, second;
  for (std::uint64_t start = 1; start <= 2; ++start) {
    recorder a(first.view, clock), b(second.view, clock);
    for (recorder* r : {&a, &b}) {
      r->trace(true);
      r->joined(start);
      r->open_communicator(0, r == &a ? 0 : 1, 2, "world");
    }
    a.end(begin(a, 1), state::done);
    time += 5000;
    if (start == 2) b.end(begin(b, 1), state::done);  // before, the rank died
    w.poll(0, first.view, "");
    w.poll(1, second.view, "");
    w.over(first.view);
    w.over(second.view);
    time += 30'000'000'000;
  }
  CHECK(w.collectives() == 1);
  CHECK(w.last_to_come().at(1).behind_ns == 5000);
}

TEST_CASE("trace writer: any bytes are a JSON string") {
  CHECK(json_string("plain") == "\"plain\"");
  CHECK(json_string("a\"b\\c\n\x01\xff") == "\"a\\\"b\\\\c\\u000a\\u0001\\u00ff\"");
}
