// SPDX-License-Identifier: Apache-2.0
// All-reduce written by the user with send and recv, twice: the simple form and the efficient one. Compares
// results and times of both with the library's own.
//   tutti-run -n 4 ring_all_reduce
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

// The didactic form: every rank's whole data travels once around the ring. Each rank sends (n - 1) * size.
tutti::task<> ring_all_reduce(tutti::communicator world, std::span<float> data) {
  const int n = world.size(), right = (world.rank() + 1) % n, left = (world.rank() + n - 1) % n;
  std::vector<float> out(data.begin(), data.end()), in(data.size());
  for (int step = 0; step + 1 < n; ++step) {
    tutti::request sending = world.isend(out, right);
    co_await world.recv(in, left);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += in[i];
    co_await sending;
    out.swap(in);
  }
}

// The bandwidth-optimal form: the data are cut into n chunks. In n - 1 steps each chunk travels around the
// ring and collects its sum; in n - 1 more the sums travel around. Each rank sends 2 * (n - 1) / n * size.
tutti::task<> chunked_ring_all_reduce(tutti::communicator world, std::span<float> data) {
  const int n = world.size(), rank = world.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
  const auto chunk = [data, n](int number) {
    const auto k = static_cast<std::size_t>((number + 2 * n) % n), parts = static_cast<std::size_t>(n);
    const std::size_t first = data.size() * k / parts, last = data.size() * (k + 1) / parts;
    return data.subspan(first, last - first);
  };
  std::vector<float> in(data.size() / static_cast<std::size_t>(n) + 1);
  for (int step = 0; step + 1 < n; ++step) {
    const std::span<float> sum = chunk(rank - step - 1), part = std::span(in).first(sum.size());
    tutti::request sending = world.isend(chunk(rank - step), right);
    co_await world.recv(part, left);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    co_await sending;
  }
  for (int step = 0; step + 1 < n; ++step) {
    tutti::request sending = world.isend(chunk(rank + 1 - step), right);
    co_await world.recv(chunk(rank - step), left);
    co_await sending;
  }
}

tutti::task<> library_all_reduce(tutti::communicator world, std::span<float> data) {
  co_await world.all_reduce(data, tutti::sum);
}

using all_reduce_function = tutti::task<> (*)(tutti::communicator, std::span<float>);

// Whole numbers with an exact sum, so that the order of the additions has no effect.
std::vector<float> contribution(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(rank) * 7) % 1000);
  return values;
}

tutti::task<> measure(tutti::communicator world, const char* name, all_reduce_function reduce,
                      std::size_t count) {
  std::vector<float> expected = contribution(world.rank(), count);
  co_await world.all_reduce(expected, tutti::sum);

  constexpr int repetitions = 5;
  std::vector<double> milliseconds;
  int correct = 1;
  for (int i = 0; i < repetitions; ++i) {
    std::vector<float> data = contribution(world.rank(), count);
    co_await world.barrier();
    const auto start = std::chrono::steady_clock::now();
    co_await reduce(world, data);
    const auto stop = std::chrono::steady_clock::now();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(stop - start).count());
    if (data != expected) correct = 0;
  }
  co_await world.all_reduce(correct, tutti::min);
  std::ranges::sort(milliseconds);
  if (world.rank() == 0) {
    std::printf("%-12s %d ranks, %zu floats: %s, median %.3f ms\n", name, world.size(), count,
                correct == 1 ? "correct" : "WRONG", milliseconds[repetitions / 2]);
  }
}

tutti::task<> compare(tutti::communicator world) {
  for (std::size_t count : {3u, 1'000u, 1'000'003u}) {
    co_await measure(world, "didactic", ring_all_reduce, count);
    co_await measure(world, "chunked", chunked_ring_all_reduce, count);
    co_await measure(world, "tutti", library_all_reduce, count);
  }
}

int main() { return tutti::run(compare); }
