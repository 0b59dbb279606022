// SPDX-License-Identifier: Apache-2.0
// hooks-perf: cost, traffic and loss of each way of averaging gradients.
//
//   tutti-run -n 2 hooks-perf                                           64 MiB of gradients
//   perf/networks --rates 1 --run 'hooks-perf --elements 4194304' build/release    over links of 1 Gbit/s
#include "common/parse.hpp"

#include <tutti/counters.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

struct wanted {
  std::size_t elements = 16 << 20;
  int steps = 5;
};

struct way {
  std::string name;
  std::shared_ptr<tutti::gradient_hook> hook;
};

std::uint64_t bytes_sent(const tutti::communicator& world) {
  std::uint64_t all = 0;
  for (const tutti::peer_counters& p : tutti::peer_counters_of(world)) all += p.bytes_sent;
  return all;
}

// Values distributed like gradients: most are small.
std::vector<float> gradients_of(int rank, std::size_t n) {
  tutti::random_bits bits(static_cast<std::uint64_t>(rank) + 1);
  std::vector<float> all(n);
  for (float& v : all) {
    const auto x = static_cast<float>(2 * bits.uniform() - 1);
    v = x * x * x;
  }
  return all;
}

tutti::task<> measure(tutti::communicator world, way one, wanted w) {
  using clock = std::chrono::steady_clock;
  const std::vector<float> mine = gradients_of(world.rank(), w.elements);
  std::vector<float> exact = mine;
  co_await world.all_reduce(exact, tutti::avg);
  std::vector<float> data(mine.size());
  tutti::gradient_bucket bucket;
  bucket.data = data;
  const tutti::gradient_view all(data);
  bucket.gradients = {&all, 1};
  std::vector<double> times;
  std::uint64_t sent = 0;
  double wrong = 0, right = 0;
  for (int step = 0; step <= w.steps; ++step) {
    std::ranges::copy(mine, data.begin());
    co_await world.barrier();
    const std::uint64_t before = bytes_sent(world);
    const clock::time_point begin = clock::now();
    co_await one.hook->reduce(world, bucket);
    double seconds = std::chrono::duration<double>(clock::now() - begin).count();
    sent = bytes_sent(world) - before;
    co_await world.all_reduce(seconds, tutti::max);
    if (step > 0) times.push_back(seconds);
    if (step > 0) continue;  // error feedback makes later results differ from the average on purpose
    for (std::size_t i = 0; i < data.size(); ++i) {
      const double off = static_cast<double>(data[i]) - static_cast<double>(exact[i]);
      wrong += off * off;
      right += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    }
  }
  std::ranges::sort(times);
  if (world.rank() == 0) {
    std::printf("%-9s %10.2f ms  %12llu bytes sent by rank 0  %.2e relative error\n", one.name.c_str(),
                times[times.size() / 2] * 1e3, static_cast<unsigned long long>(sent),
                std::sqrt(wrong / right));
    std::fflush(stdout);
  }
}

tutti::task<> measure_all(tutti::communicator world, wanted w) {
  for (const way& one : {way{"identity", tutti::identity_hook()}, way{"float16", tutti::float16_hook()},
                         way{"bfloat16", tutti::bfloat16_hook()}, way{"int8", tutti::int8_hook()}})
    co_await measure(world, one, w);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Averages gradients by each hook: the median of the slowest rank's times.", "hooks-perf");
  wanted w;
  app.add_option("--elements", w.elements, "floats")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", w.steps, "averages by each hook")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (const std::optional<int> code = perf::parse(app, argc, argv)) return *code;
  return tutti::run([w](tutti::communicator world) { return measure_all(std::move(world), w); });
}
