// SPDX-License-Identifier: Apache-2.0
// The result of one run, as a table and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace perf {

// One size. Times are those of one operation: one message one way (latency: half the round trip), or one
// collective.
struct row {
  std::size_t bytes = 0;
  std::int64_t iterations = 0;  // measured rounds
  std::int64_t operations = 0;  // in all measured rounds
  std::int64_t batches = 0;     // number of values behind the quantiles
  double median_us = 0, p10_us = 0, p90_us = 0, min_us = 0, max_us = 0;
  double mean_us = 0;         // total time, stalls included, divided by the operations
  double gb_per_s = 0;        // bytes / median
  double cpu_us = 0;          // of all ranks, per operation
  double sleeps = 0;          // of all ranks, per operation: how often a rank slept to wait
  double line_before_ns = 0;  // placement; see placement.hpp. 0: not measured
  double line_after_ns = 0;
  std::int64_t faults = 0;  // wrong messages or results
};

// One size and one mode of computing; see overlap.hpp. CPU is that of all ranks.
struct overlap_row {
  std::size_t bytes = 0;
  std::string mode;
  std::int64_t triples = 0;  // measurements behind each median
  double comm_us = 0, compute_us = 0, both_us = 0, both_p10_us = 0, both_p90_us = 0;
  double overlap = 0;  // 1: the communication took no time; 0: all of its time; negative: longer than alone
  double comm_cpu_us = 0, compute_cpu_us = 0, both_cpu_us = 0;
  double bound_us = 0;  // lower bound of both at once: the longer of the two, and all CPU over all cores
  double line_before_ns = 0, line_after_ns = 0;
  std::int64_t faults = 0;
};

struct report {
  std::string program, library, command, transport, loop;
  std::string memory = "ordinary";     // of the messages
  std::string binding = "free";        // or "pinned": each rank to one core
  std::string contents = "unchanged";  // or "rewritten" before every operation
  int ranks = 0;
  int cores = 0;
  std::string machine;
  std::vector<row> rows;
  std::vector<overlap_row> overlaps;  // of the command overlap; then `rows` is empty

  bool good() const noexcept;
};

// The table in three parts, so that rows appear while others are being measured.
void print_header(std::FILE* to, const report& of, double line_ns);
void print_row(std::FILE* to, const report& of, const row& one);
void print_row(std::FILE* to, const overlap_row& of);
void print_footer(std::FILE* to, const report& of);

std::string json_of(const report& of);
// Throws std::runtime_error that names the missing or wrong field.
report report_of_json(const std::string& text);

// "-" is stdout. Throws std::runtime_error.
void write_json(const report& of, const std::string& file);

}  // namespace perf
