// SPDX-License-Identifier: Apache-2.0
// Overlaps three things: a kernel on one stream, an all_reduce, and computation on the host. Prints how much
// of the all_reduce was hidden, from medians of 9. --trace FILE writes a trace of the last for
// chrome://tracing or ui.perfetto.dev. --rounds N sets the length of the kernel, --ranks N the number of
// threads that are ranks.
//   tutti-run -n 2 gpu_overlap --device emulated
#include "gpu/device_kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tutti/gpu/open.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

namespace gpu = tutti::gpu;
using clock_type = std::chrono::steady_clock;
using gpu_examples::device_kernels;

struct span_of_time {
  const char* what;
  clock_type::time_point begin, end;
};

double seconds(clock_type::duration d) { return std::chrono::duration<double>(d).count(); }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// About a millisecond of work on the host.
double host_work() {
  double x = 1;
  for (int i = 0; i < 200000; ++i) x = x * 1.0000001 + 1e-9;
  return x;
}

struct programme {
  tutti::communicator world;
  gpu::device dev;
  device_kernels kernels;
  gpu::stream computing, moving;
  gpu::device_buffer<float> weights, gradient;
  std::vector<span_of_time> trace;

  programme(tutti::communicator w, gpu::device d)
      : world(std::move(w)),
        dev(d),
        kernels(d),
        computing(d),
        moving(d),
        weights(d, 1 << 13),  // 32 blocks: the kernels of several ranks fit on one GPU at once
        gradient(d, 1 << 21) {}

  void compute(int rounds) {
    gpu_examples::arguments a;
    a.memory[0] = weights.data();
    a.length[0] = a.count = weights.size();
    a.number[0] = rounds;
    kernels.launch(computing, device_kernels::kernel::busy, a);
  }
  tutti::task<> timed(const char* what, gpu::stream s) {
    const auto begin = clock_type::now();
    co_await s.reached();
    trace.push_back({what, begin, clock_type::now()});
  }
  tutti::task<> reduce() {
    const auto begin = clock_type::now();
    co_await world.all_reduce(gradient, tutti::avg, moving);
    trace.push_back({"all_reduce", begin, clock_type::now()});
  }
};

void write_trace(const std::string& path, const programme& p, clock_type::time_point zero) {
  std::FILE* const out = std::fopen(path.c_str(), "w");
  if (out == nullptr) return;
  std::fprintf(out, "[");
  const char* comma = "";
  for (const span_of_time& s : p.trace) {
    std::fprintf(out, "%s\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":\"%s\",\"ts\":%.1f,\"dur\":%.1f}",
                 comma, s.what, p.world.rank(), s.what, seconds(s.begin - zero) * 1e6,
                 seconds(s.end - s.begin) * 1e6);
    comma = ",";
  }
  std::fprintf(out, "\n]\n");
  std::fclose(out);
}

tutti::task<int> overlap(tutti::communicator world, std::string kind, int rounds, std::string trace_file) {
  const gpu::device dev = co_await gpu_examples::open_device(world, kind);
  programme p(world, dev);
  co_await p.computing.fill(p.weights, std::byte{0});
  co_await p.moving.fill(p.gradient, std::byte{0});
  co_await p.reduce();  // the first call allocates buffers and connects

  std::vector<double> kernels, reductions, both_times;
  clock_type::time_point zero;
  double value = 0;
  for (int i = 0; i < 9; ++i) {
    // One after the other.
    co_await world.barrier();
    auto begin = clock_type::now();
    p.compute(rounds);
    co_await p.computing.reached();
    kernels.push_back(seconds(clock_type::now() - begin));
    co_await world.barrier();  // the kernels of all ranks have ended
    begin = clock_type::now();
    co_await p.reduce();
    reductions.push_back(seconds(clock_type::now() - begin));

    // Overlapped: enqueues the kernel, starts the all_reduce, and works on the host between turns of the loop.
    p.trace.clear();
    co_await world.barrier();
    zero = clock_type::now();
    p.compute(rounds);
    tutti::scope both;
    both.spawn(p.timed("kernel", p.computing));
    both.spawn(p.reduce());
    const auto working = clock_type::now();
    const auto work = [] { return host_work(); };
    value = co_await tutti::compute(work);
    p.trace.push_back({"host", working, clock_type::now()});
    co_await both.join();
    both_times.push_back(seconds(clock_type::now() - zero));
  }
  const double kernel = median(kernels), reducing = median(reductions), together = median(both_times);
  const double hidden = std::clamp((kernel + reducing - together) / std::min(kernel, reducing), 0.0, 1.0);
  if (world.rank() == 0) {
    std::printf(
        "%s, %d ranks: kernel %.2f ms, all_reduce of 8 MiB %.2f ms, at once %.2f ms: %.0f %% of the shorter "
        "hidden (%.3f)\n",
        dev.name().c_str(), world.size(), kernel * 1e3, reducing * 1e3, together * 1e3, hidden * 100, value);
    for (const span_of_time& s : p.trace) {
      const double scale = 60 / both_times.back();
      const int from = static_cast<int>(seconds(s.begin - zero) * scale),
                to = static_cast<int>(seconds(s.end - zero) * scale);
      std::printf("%-12s %*s%s\n", s.what, from, "",
                  std::string(static_cast<std::size_t>(std::max(1, to - from)), '#').c_str());
    }
    if (!trace_file.empty()) write_trace(trace_file, p, zero);
  }
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = gpu_examples::option_of(argc, argv, "--device", "emulated");
  const std::string trace = gpu_examples::option_of(argc, argv, "--trace", "");
  const int rounds = std::atoi(
      gpu_examples::option_of(argc, argv, "--rounds", kind == "emulated" ? "1600" : "2000000").c_str());
  return gpu_examples::run(
      argc, argv, [&](tutti::communicator world) { return overlap(std::move(world), kind, rounds, trace); });
}
