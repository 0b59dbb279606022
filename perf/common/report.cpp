// SPDX-License-Identifier: Apache-2.0
#include "common/report.hpp"

#include "common/placement.hpp"

#include <algorithm>

namespace perf {

bool report::good() const noexcept {
  return std::all_of(rows.begin(), rows.end(), [](const row& r) { return r.faults == 0; });
}

void print_header(std::FILE* to, const report& of, double line_ns) {
  std::fprintf(to, "%s %s | %s | %d ranks on %d cores | transport %s", of.program.c_str(), of.command.c_str(),
               of.library.c_str(), of.ranks, of.cores, of.transport.c_str());
  if (!of.loop.empty()) std::fprintf(to, " | loop %s", of.loop.c_str());
  if (of.memory != "ordinary") std::fprintf(to, " | %s memory", of.memory.c_str());
  std::fprintf(to, "\n%s | cache line from core to core %s\n", of.machine.c_str(),
               text_of_line(line_ns).c_str());
  std::fprintf(to, "%10s %11s %11s %11s %11s %11s %8s %11s %10s %6s %s\n", "bytes", "iterations", "median us",
               "p10 us", "p90 us", "mean us", "GB/s", "CPU us/op", "sleeps/op", "place", "check");
  std::fflush(to);
}

void print_row(std::FILE* to, const row& of) {
  const std::string check = of.faults == 0 ? "ok" : "WRONG (" + std::to_string(of.faults) + ")";
  std::fprintf(to, "%10zu %11lld %11.3f %11.3f %11.3f %11.3f %8.3f %11.3f %10.4f %6s %s\n", of.bytes,
               static_cast<long long>(of.iterations), of.median_us, of.p10_us, of.p90_us, of.mean_us,
               of.gb_per_s, of.cpu_us, of.sleeps, text_of_places(of.line_before_ns, of.line_after_ns).c_str(),
               check.c_str());
  std::fflush(to);
}

void print_footer(std::FILE* to, const report& of) {
  if (!of.rows.empty())
    std::fprintf(to, "cache line from core to core %s at the end\n",
                 text_of_line(of.rows.back().line_after_ns).c_str());
  if (!of.good())
    std::fputs("WRONG contents were received: do not trust these times, report this as a fault\n", to);
  std::fflush(to);
}

}  // namespace perf
