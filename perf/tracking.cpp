// SPDX-License-Identifier: Apache-2.0
// tracking-perf: the cost of a tracking call to a rank that logs often. Checks that every logged value is on
// disk or counted as dropped.
//
//   tutti-run -n 4 tracking-perf --directory runs            a million scalars a minute from each rank
//   tutti-run -n 4 tracking-perf --directory runs --rate 0   as many as go
#include "common/parse.hpp"

#include <tutti/track.hpp>
#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using clock_type = std::chrono::steady_clock;
namespace fs = std::filesystem;

struct tracking_options {
  double rate = 1e6 / 60;  // scalars a second of each rank; 0: as many as go
  double seconds = 60;
  std::size_t buffer_mib = 32;
  std::string directory;
};

struct result {
  double seconds = 0, said = 0, written = 0, dropped = 0, found = 0;
  double cost_ns = 0;  // mean of all calls
  double p50_ns = 0, p99_ns = 0, p9999_ns = 0, most_ns = 0;
  double clock_ns = 0;  // cost of reading the clock, included in each of the above
  double finish_ms = 0;
  double memory_mib = 0;   // peak resident memory, less that before the first call
  double cpu_percent = 0;  // of one core: both threads
};

double seconds_between(clock_type::time_point a, clock_type::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

double most_resident_mib() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1024;
}
double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Counts the values on disk; -1 if one is duplicated or out of order.
double numbers_found(const fs::path& lines) {
  std::ifstream file(lines);
  double found = 0;
  std::int64_t last = -1;
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find("\"step\":");
    if (line.find("\"name\":\"n\"") == line.npos || at == line.npos) continue;
    const std::int64_t step = std::strtoll(line.c_str() + at + 7, nullptr, 10);
    if (step <= last) return -1;
    last = step;
    ++found;
  }
  return found;
}

tutti::task<int> measure(tutti::communicator world, tracking_options chosen) {
  tutti::track::options o;
  o.directory = chosen.directory;
  o.console = false;
  o.buffer_bytes = chosen.buffer_mib << 20;
  o.finish_timeout = std::chrono::minutes(2);
  o.system_metrics = std::chrono::milliseconds(0);
  tutti::track::log log = co_await tutti::track::open(world, o);
  const fs::path lines = log.directory() / ("rank-" + std::to_string(world.rank()) + ".jsonl");

  std::vector<std::uint32_t> costs;  // in ns; reserved for all, so that no call includes an allocation
  costs.reserve(static_cast<std::size_t>(std::max(chosen.rate, 2e6) * chosen.seconds) + 1000);
  result r;
  constexpr int looks = 10'000;
  const auto before_polls = clock_type::now();
  for (int i = 0; i < looks; ++i) (void)clock_type::now();
  r.clock_ns = 1e9 * seconds_between(before_polls, clock_type::now()) / looks;
  for (std::size_t i = 0; i < costs.capacity(); i += 1024) costs.push_back(0);  // touches its pages
  costs.clear();
  co_await world.barrier();

  const double resident = most_resident_mib(), cpu = cpu_seconds();
  const auto start = clock_type::now();
  std::uint64_t said = 0;
  for (;;) {
    const double passed = seconds_between(start, clock_type::now());
    if (passed >= chosen.seconds || costs.size() + 1000 > costs.capacity()) break;
    const auto due = chosen.rate > 0 ? static_cast<std::uint64_t>(passed * chosen.rate) : said + 1000;
    for (; said < due; ++said) {
      const auto called = clock_type::now();
      log.scalar("n", static_cast<std::int64_t>(said), static_cast<double>(said));
      costs.push_back(
          static_cast<std::uint32_t>(std::min(4e9, 1e9 * seconds_between(called, clock_type::now()))));
    }
    if (chosen.rate > 0) {
      boost::asio::steady_timer step(world.get_executor(), std::chrono::milliseconds(1));
      co_await step.async_wait(boost::asio::deferred);
    }
  }
  r.seconds = seconds_between(start, clock_type::now());
  r.cpu_percent = 100 * (cpu_seconds() - cpu) / r.seconds;
  const auto finishing = clock_type::now();
  const tutti::track::totals totals = co_await log.finish();
  r.finish_ms = 1e3 * seconds_between(finishing, clock_type::now());
  r.memory_mib = most_resident_mib() - resident;
  r.said = static_cast<double>(said);
  r.written = static_cast<double>(totals.written);
  r.dropped = static_cast<double>(totals.dropped + totals.failed);
  const auto look = [&r, &costs, &lines] {
    for (const std::uint32_t c : costs) r.cost_ns += c;
    r.cost_ns /= std::max(r.said, 1.0);
    std::sort(costs.begin(), costs.end());
    const auto quantile = [&costs](double q) {
      return costs.empty() ? 0.0
                           : static_cast<double>(
                                 costs[static_cast<std::size_t>(q * static_cast<double>(costs.size() - 1))]);
    };
    r.p50_ns = quantile(0.5);
    r.p99_ns = quantile(0.99);
    r.p9999_ns = quantile(0.9999);
    r.most_ns = quantile(1);
    r.found = numbers_found(lines);
  };
  co_await tutti::compute(look);

  std::vector<result> all(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(r, all);
  int wrong = 0;
  if (world.rank() == 0)
    std::printf("%4s %10s %10s %9s %10s %7s %9s %7s %7s %9s %9s %9s %10s %8s\n", "rank", "said", "written",
                "counted", "on disk", "right", "a second", "mean ns", "p50 ns", "p99 ns", "p99.99 ns",
                "most us", "memory MiB", "CPU %");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const result& a = all[i];
    const bool right = totals.complete && a.written + a.dropped == a.said && a.found == a.written;
    wrong += right ? 0 : 1;
    if (world.rank() == 0)
      std::printf("%4zu %10.0f %10.0f %9.0f %10.0f %7s %9.0f %7.0f %7.0f %9.0f %9.0f %9.1f %10.1f %8.1f\n", i,
                  a.said, a.written, a.dropped, a.found, right ? "yes" : "NO", a.said / a.seconds, a.cost_ns,
                  a.p50_ns, a.p99_ns, a.p9999_ns, a.most_ns / 1e3, a.memory_mib, a.cpu_percent);
  }
  if (world.rank() == 0)
    std::printf("reading the clock takes %.0f ns of each; finish() took %.0f ms\n", r.clock_ns, r.finish_ms);
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  tracking_options chosen;
  CLI::App app("What tracking costs ranks that say much.", "tracking-perf");
  app.add_option("--rate", chosen.rate, "scalars a second of each rank (0: as many as go)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seconds", chosen.seconds)->check(CLI::Range(0.01, 3600.0))->capture_default_str();
  app.add_option("--buffer-mib", chosen.buffer_mib, "memory of what is not yet written")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--directory", chosen.directory, "where the run is kept, on a disk to be measured")
      ->required();
  if (const std::optional<int> code = perf::parse(app, argc, argv)) return *code;
  return tutti::run([&chosen](tutti::communicator world) { return measure(world, chosen); });
}
