// SPDX-License-Identifier: Apache-2.0
#include "common/report.hpp"

#include "common/placement.hpp"

#include <algorithm>

namespace perf {

namespace {

const char* rate_of(const report& of) noexcept { return of.command == "message_rate" ? "M/s" : "GB/s"; }

std::string verdict(std::int64_t faults) {
  return faults == 0 ? "ok" : "WRONG (" + std::to_string(faults) + ")";
}

}  // namespace

bool report::good() const noexcept {
  const auto right = [](const auto& r) { return r.faults == 0; };
  return std::all_of(rows.begin(), rows.end(), right) && std::all_of(overlaps.begin(), overlaps.end(), right);
}

void print_header(std::FILE* to, const report& of, double line_ns) {
  std::fprintf(to, "%s %s | %s | %d ranks on %d cores | transport %s", of.program.c_str(), of.command.c_str(),
               of.library.c_str(), of.ranks, of.cores, of.transport.c_str());
  if (!of.loop.empty()) std::fprintf(to, " | loop %s", of.loop.c_str());
  if (of.memory != "ordinary") std::fprintf(to, " | %s memory", of.memory.c_str());
  if (of.binding != "free") std::fprintf(to, " | %s", of.binding.c_str());
  if (of.contents != "unchanged") std::fprintf(to, " | %s", of.contents.c_str());
  std::fprintf(to, "\n%s | cache line from core to core %s\n", of.machine.c_str(),
               text_of_line(line_ns).c_str());
  if (of.command == "overlap")
    std::fprintf(to, "%10s %8s %8s %11s %11s %11s %8s %11s %12s %11s %9s %6s %s\n", "bytes", "compute",
                 "triples", "t_comm us", "t_comp us", "t_both us", "overlap", "both/bound", "CPU sum us",
                 "CPU both us", "CPU lost", "place", "check");
  else
    std::fprintf(to, "%10s %11s %11s %11s %11s %11s %8s %11s %10s %6s %s\n", "bytes", "iterations",
                 "median us", "p10 us", "p90 us", "mean us", rate_of(of), "CPU us/op", "sleeps/op", "place",
                 "check");
  std::fflush(to);
}

void print_row(std::FILE* to, const report& of, const row& one) {
  const double rate = of.command != "message_rate" ? one.gb_per_s : one.median_us > 0 ? 1 / one.median_us : 0;
  std::fprintf(to, "%10zu %11lld %11.3f %11.3f %11.3f %11.3f %8.3f %11.3f %10.4f %6s %s\n", one.bytes,
               static_cast<long long>(one.iterations), one.median_us, one.p10_us, one.p90_us, one.mean_us,
               rate, one.cpu_us, one.sleeps, text_of_places(one.line_before_ns, one.line_after_ns).c_str(),
               verdict(one.faults).c_str());
  std::fflush(to);
}

void print_row(std::FILE* to, const overlap_row& of) {
  const double sum = of.comm_cpu_us + of.compute_cpu_us;
  std::fprintf(to, "%10zu %8s %8lld %11.1f %11.1f %11.1f %7.1f%% %11.3f %12.1f %11.1f %8.1f%% %6s %s\n",
               of.bytes, of.mode.c_str(), static_cast<long long>(of.triples), of.comm_us, of.compute_us,
               of.both_us, 100 * of.overlap, of.both_us / std::max(of.bound_us, 1e-9), sum, of.both_cpu_us,
               100 * (of.both_cpu_us - sum) / std::max(sum, 1e-9),
               text_of_places(of.line_before_ns, of.line_after_ns).c_str(), verdict(of.faults).c_str());
  std::fflush(to);
}

void print_footer(std::FILE* to, const report& of) {
  const double line_ns = !of.rows.empty()       ? of.rows.back().line_after_ns
                         : !of.overlaps.empty() ? of.overlaps.back().line_after_ns
                                                : 0;
  if (line_ns > 0)
    std::fprintf(to, "cache line from core to core %s at the end\n", text_of_line(line_ns).c_str());
  if (!of.good())
    std::fputs("WRONG contents were received: do not trust these times, report this as a fault\n", to);
  std::fflush(to);
}

}  // namespace perf
