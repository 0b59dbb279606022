// SPDX-License-Identifier: Apache-2.0
// The report as JSON: one object, with the rows in "rows" and units in the names.
#include "common/report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace perf {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(row, bytes, iterations, operations, batches, median_us, p10_us, p90_us,
                                   min_us, max_us, mean_us, gb_per_s, cpu_us, sleeps, line_before_ns,
                                   line_after_ns, faults)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(overlap_row, bytes, mode, triples, comm_us, compute_us, both_us,
                                   both_p10_us, both_p90_us, overlap, comm_cpu_us, compute_cpu_us,
                                   both_cpu_us, bound_us, line_before_ns, line_after_ns, faults)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(report, program, library, command, transport, loop, memory, binding,
                                   contents, ranks, cores, machine, rows, overlaps)

std::string json_of(const report& of) {
  return nlohmann::json(of).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

report report_of_json(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<report>();
  } catch (const nlohmann::json::exception& wrong) {
    throw std::runtime_error(std::string("not the --json of a tutti-perf of this version: ") + wrong.what());
  }
}

void write_json(const report& of, const std::string& file) {
  const std::string text = json_of(of);
  std::FILE* to = file == "-" ? stdout : std::fopen(file.c_str(), "w");
  const bool written = to != nullptr && std::fputs(text.c_str(), to) >= 0 && std::fflush(to) == 0;
  const bool closed = to == nullptr || to == stdout || std::fclose(to) == 0;
  if (!written || !closed) throw std::runtime_error("--json " + file + ": cannot be written");
}

}  // namespace perf
