// SPDX-License-Identifier: Apache-2.0
#include "common/report.hpp"

#include <doctest/doctest.h>
#include <stdexcept>
#include <string>

namespace {

perf::report example() {
  perf::report r;
  r.program = "tutti-perf";
  r.library = "tutti 0";
  r.command = "latency";
  r.transport = "shm";
  r.loop = "epoll";
  r.memory = "shared";
  r.machine = "a \"machine\"\n";
  r.ranks = 2;
  r.cores = 4;
  perf::row row;
  row.bytes = 1 << 20;
  row.iterations = 12;
  row.median_us = 0.1234567890123;
  row.line_before_ns = 52;
  r.rows = {row, row};
  r.binding = "pinned";
  r.contents = "rewritten";
  return r;
}

}  // namespace

TEST_CASE("a report survives the round trip through JSON") {
  const perf::report written = example();
  const perf::report read = perf::report_of_json(perf::json_of(written));
  CHECK(read.machine == written.machine);
  CHECK(read.loop == "epoll");
  CHECK(read.memory == "shared");
  CHECK(read.binding == "pinned");
  CHECK(read.contents == "rewritten");
  CHECK(read.overlaps.empty());
  CHECK(read.ranks == 2);
  REQUIRE(read.rows.size() == 2);
  CHECK(read.rows[1].bytes == 1 << 20);
  CHECK(read.rows[1].median_us == written.rows[1].median_us);
  CHECK(read.rows[1].line_before_ns == 52);
}

TEST_CASE("other JSON is refused") {
  for (const char* wrong : {"", "{", "[]", "{}", "{\"program\": 3}", "nonsense"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(perf::report_of_json(wrong), std::runtime_error);
  }
}

TEST_CASE("the error names a file that cannot be written") {
  try {
    perf::write_json(example(), "/nowhere/at/all.json");
    FAIL("written");
  } catch (const std::runtime_error& failure) {
    CHECK(std::string(failure.what()).find("/nowhere/at/all.json") != std::string::npos);
  }
}

TEST_CASE("one wrong row fails the report") {
  perf::report r = example();
  CHECK(r.good());
  r.overlaps.resize(1);
  r.overlaps[0].faults = 1;
  CHECK_FALSE(r.good());
  r.overlaps.clear();
  r.rows[1].faults = 1;
  CHECK_FALSE(r.good());
}
