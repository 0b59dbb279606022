// SPDX-License-Identifier: Apache-2.0
// forecast-perf: how close the choice of algorithms comes to the best, for any ranks and links. The simulator
// runs each algorithm of each collective, and the one that tutti chooses by default.
//   forecast-perf --ranks 16 --per-host 16             16 ranks of one host, by messages
//   forecast-perf --ranks 64 --per-host 8 --latency-us 5 --gbytes 12.5
#include "collectives.hpp"
#include "common/parse.hpp"

#include <tutti/sim.hpp>
#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sim = tutti::sim;

// `bytes`: of the larger buffer, as in rules.
struct attempt {
  const perf::collective& what;
  tutti::algorithm with;
  std::size_t bytes;
  bool refused = false;
  sim::duration begun{0};
  sim::duration ended{0};
};

tutti::task<> perform(tutti::communicator world, attempt* a) {
  perf::buffers b(world.size(), a->bytes);
  // If an algorithm does not apply, all ranks get the error before they send. Otherwise this makes the
  // connections.
  bool refused = false;
  try {
    co_await a->what.call(world, b).with(a->with);
  } catch (const tutti::error& e) {
    refused = e.code() == tutti::errc::invalid_argument;
    if (!refused) throw;
  }
  a->refused = refused;
  if (refused) co_return;
  const auto begin = std::chrono::ceil<std::chrono::hours>(tutti::now().time_since_epoch());
  co_await tutti::sleep_for(begin - tutti::now().time_since_epoch());
  a->begun = begin;
  co_await a->what.call(world, b).with(a->with);
  a->ended = std::max<sim::duration>(a->ended, tutti::now().time_since_epoch());
}

// Returns microseconds, or a negative value if the algorithm does not apply.
double time_of(const sim::options& o, const perf::collective& what, std::size_t bytes,
               tutti::algorithm with) {
  attempt a{what, with, bytes};
  const sim::report r =
      sim::run(o, [&a](tutti::communicator world) { return perform(std::move(world), &a); });
  if (!r.all_returned()) {
    std::fprintf(stderr, "forecast-perf: %s\n", r.text().c_str());
    std::exit(1);
  }
  return a.refused ? -1 : static_cast<double>((a.ended - a.begun).count()) / 1000;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Simulates every algorithm of every collective, and says what the automatic choice costs more.",
      "forecast-perf");
  sim::options o;
  o.seed = 1;
  o.ranks = 16;
  o.timeout = std::chrono::hours(10);
  double latency_us = 5, overhead_us = 0.5, gbytes = 12.5, local_latency_us = 0.5, local_gbytes = 20,
         worth = 1.1;
  std::vector<std::size_t> sizes = {64, 1024, 4096, 16'384, 65'536, 262'144, 1 << 20, 4 << 20};
  std::string only;
  app.add_option("--ranks", o.ranks)->check(CLI::Range(2, 1024))->capture_default_str();
  app.add_option("--per-host", o.ranks_per_host, "ranks of one host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--latency-us", latency_us, "between hosts")->capture_default_str();
  app.add_option("--gbytes", gbytes, "per second of each port")->capture_default_str();
  app.add_option("--overhead-us", overhead_us, "of a processor, for each frame")->capture_default_str();
  app.add_option("--local-latency-us", local_latency_us, "inside a host")->capture_default_str();
  app.add_option("--local-gbytes", local_gbytes)->capture_default_str();
  app.add_option("--sizes", sizes, "bytes of the larger buffer")->delimiter(',');
  app.add_option("--only", only, "one collective");
  app.add_option("--worth", worth, "marks where the choice takes so many times the best")
      ->capture_default_str();
  if (const std::optional<int> code = perf::parse(app, argc, argv)) return *code;
  const auto ns = [](double us) { return sim::duration(static_cast<long>(us * 1000)); };
  o.network.latency = ns(latency_us);
  o.network.overhead = ns(overhead_us);
  o.network.bytes_per_second = gbytes * 1e9;
  o.network.local_latency = ns(local_latency_us);
  o.network.local_bytes_per_second = local_gbytes * 1e9;

  std::printf("%d ranks, %d per host\n", o.ranks, o.ranks_per_host);
  for (const perf::collective& what : perf::collectives) {
    if (!only.empty() && only != what.name) continue;
    for (const std::size_t bytes : sizes) {
      const double chosen = time_of(o, what, bytes, tutti::algorithm::automatic);
      double best = -1;
      std::string line, fastest;
      for (const tutti::algorithm with : tutti::all_algorithms()) {
        const double us = time_of(o, what, bytes, with);
        if (us < 0) continue;
        char text[96];
        std::snprintf(text, sizeof text, "  %s %.1f", tutti::name_of(with), us);
        line += text;
        if (best >= 0 && us >= best) continue;
        best = us;
        fastest = tutti::name_of(with);
      }
      std::printf("%-14s %9zu  chosen %.1f us, %.2f of the best (%s)%s |%s\n", what.name, bytes, chosen,
                  chosen / best, fastest.c_str(), chosen > worth * best ? " <--" : "", line.c_str());
      std::fflush(stdout);
    }
  }
}
