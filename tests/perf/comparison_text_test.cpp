// SPDX-License-Identifier: Apache-2.0
#include "common/comparison_text.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

perf::launch launched(const char* peer, double median_us) {
  perf::report r;
  r.library = std::string("library ") + peer;
  r.command = "latency";
  r.transport = "shm";
  r.ranks = r.cores = 2;
  perf::row row;
  row.bytes = 8;
  row.median_us = median_us;
  row.line_before_ns = row.line_after_ns = 50;
  r.rows = {row};
  return {peer, r};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("times have three digits and no exponent") {
  const std::string table = perf::markdown_of(
      {"x", {launched("tutti", 0.1312), launched("tutti", 9.876), launched("tutti", 148'407)}});
  CHECK(has(table, "| 9.88 (0.131..148407) |"));
}

TEST_CASE("the table names the rival, the ratio, the target and a fault") {
  perf::benchmark of{"latency.2.shm", {launched("tutti", 1), launched("openmpi", 2), launched("limit", 0.5)}};
  const std::string table = perf::markdown_of(of);
  CHECK(has(table, "### latency.2.shm"));
  CHECK(has(table, "| openmpi 2.00 (2.00..2.00) | **0.50** (0.50..0.50) |"));
  CHECK(has(table, "<= 0.95: 0.50 met"));
  CHECK(has(table, "library openmpi"));
  CHECK_FALSE(has(table, "WRONG"));
  CHECK(has(perf::markdown_of_targets({of}), "1 of 1 met"));
  CHECK(has(perf::markdown_of_ratios({of}), "| latency.2.shm | tutti | 8 B **0.50** openmpi |"));
  of.launches[0].what.rows[0].faults = 1;
  CHECK(has(perf::markdown_of(of), "WRONG"));
  CHECK(perf::markdown_of({"empty", {}}).empty());
}

TEST_CASE("a target that was missed is marked") {
  const perf::benchmark of{"latency.2.shm", {launched("tutti", 2), launched("openmpi", 2)}};
  CHECK(has(perf::markdown_of_targets({of}), "| openmpi | 1.00 | <= 0.95 | **not met** |"));
  CHECK(has(perf::markdown_of_targets({{"x", {launched("tutti", 1)}}}), "None of the measured cases"));
}

TEST_CASE("JSON has the same rows") {
  const std::string json = perf::json_of(
      {{"latency.2.shm", {launched("tutti", 0.123456), launched("openmpi", 1234.56)}}}, "a \"method\"");
  const nlohmann::json read = nlohmann::json::parse(json);
  CHECK(read["method"] == "a \"method\"");
  const nlohmann::json& of = read["benchmarks"].at(0);
  CHECK(of["name"] == "latency.2.shm");
  CHECK(of["overlaps"].empty());
  const nlohmann::json& row = of["rows"].at(0);
  CHECK(row["rivals"].at(0)["peer"] == "openmpi");
  CHECK(row["rivals"].at(0)["us"]["median"] == 1235);
  CHECK(row["own"]["us"]["median"] == 0.1235);
  CHECK(row["targets"].at(0)["met"] == true);
}
