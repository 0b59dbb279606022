// SPDX-License-Identifier: Apache-2.0
#include "tune.hpp"

#include "collectives.hpp"
#include "common/parse.hpp"
#include "common/sizes.hpp"
#include "common/statistics.hpp"

#include <CLI/CLI.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace perf {
namespace {

struct tuning {
  std::vector<std::size_t> sizes;
  double seconds = 0.05;
  std::string output = "tutti.tuning";
};

// Returns the median time of one call in microseconds, the same on all ranks. Negative if the algorithm does
// not apply here.
tutti::task<double> time_of(tutti::communicator world, const collective* what, std::size_t bytes,
                            tutti::algorithm with, double seconds) {
  using clock = std::chrono::steady_clock;
  buffers b(world.size(), bytes);
  // If an algorithm does not apply, all ranks get the error before they send.
  bool refused = false;
  try {
    co_await what->call(world, b).with(with);
  } catch (const tutti::error& e) {
    refused = e.code() == tutti::errc::invalid_argument;
    if (!refused) throw;
  }
  if (refused) co_return -1;
  std::vector<double> times;
  const clock::time_point end =
      clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  for (bool more = true; more;) {
    co_await world.barrier();
    const clock::time_point begin = clock::now();
    co_await what->call(world, b).with(with);
    double us = std::chrono::duration<double, std::micro>(clock::now() - begin).count();
    co_await world.all_reduce(us, tutti::max);
    times.push_back(us);
    more = clock::now() < end || times.size() < 5;
    co_await world.broadcast(more, 0);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  double median = times[times.size() / 2];
  co_await world.broadcast(median, 0);
  co_return median;
}

tutti::task<std::string> rules_of(tutti::communicator world, const collective* one, tuning wanted) {
  std::string rules;
  std::size_t last_size = 0;
  tutti::algorithm last = tutti::algorithm::automatic;
  const auto end_run = [&](std::size_t upto) {
    if (last == tutti::algorithm::automatic) return;
    rules += std::string(one->name) + " ranks>=" + std::to_string(world.size()) +
             " bytes<=" + (upto == 0 ? std::string("any") : std::to_string(upto)) + " " +
             tutti::name_of(last) + "\n";
  };
  for (const std::size_t bytes : wanted.sizes) {
    double best = -1;
    tutti::algorithm fastest = tutti::algorithm::automatic;
    std::string line;
    for (const tutti::algorithm with : tutti::all_algorithms()) {
      const double us = co_await time_of(world, one, bytes, with, wanted.seconds);
      if (us < 0) continue;
      char text[96];
      std::snprintf(text, sizeof text, "  %s %.2f us", tutti::name_of(with), us);
      line += text;
      if (best < 0 || us < best) {
        best = us;
        fastest = with;
      }
    }
    if (world.rank() == 0) {
      std::printf("%-14s %9zu %s\n", one->name, bytes, line.c_str());
      std::fflush(stdout);
    }
    // The switch point lies between two sizes: takes the middle.
    if (fastest != last) end_run(last_size + (bytes - last_size) / 2);
    last = fastest;
    last_size = bytes;
  }
  end_run(0);
  co_return rules;
}

tutti::task<int> tune_all(tutti::communicator world, tuning wanted) {
  if (world.size() == 1) {
    std::fputs("tutti-perf: tune needs at least 2 ranks: tutti-run -n 2 tutti-perf tune\n", stderr);
    co_return 2;
  }
  std::string rules = "# Measured by tutti-perf tune with " + std::to_string(world.size()) +
                      " ranks; used with TUTTI_TUNING=<this file>, the same on all ranks.\n";
  for (const collective& one : collectives) rules += co_await rules_of(world, &one, wanted);
  if (world.rank() != 0) co_return 0;
  std::FILE* const file = std::fopen(wanted.output.c_str(), "w");
  const bool written = file != nullptr && std::fputs(rules.c_str(), file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !written) {
    std::fprintf(stderr, "tutti-perf: cannot write %s\n", wanted.output.c_str());
    co_return 1;
  }
  std::printf("\n%swritten to %s; use it with TUTTI_TUNING=%s\n", rules.c_str(), wanted.output.c_str(),
              wanted.output.c_str());
  co_return 0;
}

}  // namespace

int tune(int argc, const char* const* argv) {
  CLI::App app(
      "Measures every algorithm of every collective on these ranks, and writes which to use.\n"
      "  tutti-run -n 4 tutti-perf tune --output here.tuning",
      "tutti-perf tune");
  tuning wanted;
  std::string sizes = "64,1KiB,8KiB,64KiB,512KiB,4MiB";
  app.add_option("--sizes", sizes, "bytes of the larger buffer, ascending")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--seconds", wanted.seconds, "time per size and algorithm")
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--output", wanted.output, "the file to write")->type_name("FILE")->capture_default_str();
  if (const std::optional<int> code = parse(app, argc, argv)) return *code;
  try {
    wanted.sizes = parse_sizes(sizes);
    std::sort(wanted.sizes.begin(), wanted.sizes.end());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti-perf tune: %s\n", e.what());
    return 2;
  }
  return tutti::run([&](tutti::communicator world) { return tune_all(std::move(world), wanted); });
}

}  // namespace perf
