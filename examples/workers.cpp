// SPDX-License-Identifier: Apache-2.0
// Coroutines of rank 0 share the messages of all other ranks: whichever is free takes the next, of any length.
//   tutti-run -n 4 workers
#include <tutti/tutti.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

constexpr int jobs_of_each = 10;

tutti::task<> worker(tutti::communicator world, int* left, double* total) {
  while ((*left)-- > 0) {
    tutti::matched_message job = co_await world.matched_probe(tutti::any_source);
    std::vector<double> data(job.status().count<double>());
    co_await job.recv(data);  // no other coroutine can receive this message
    const auto add = [&data] { return std::accumulate(data.begin(), data.end(), 0.0); };
    *total += co_await tutti::compute(add);
  }
}

tutti::task<> program(tutti::communicator world) {
  int left = jobs_of_each * (world.size() - 1);
  if (world.rank() > 0) {
    for (std::size_t i = 1; i <= jobs_of_each; ++i) co_await world.send(std::vector<double>(i * 1000, 1), 0);
  } else {
    double total = 0;
    co_await tutti::when_all(worker(world, &left, &total), worker(world, &left, &total),
                             worker(world, &left, &total));
    std::printf("%d jobs, total %g\n", jobs_of_each * (world.size() - 1), total);
  }
}

int main() { return tutti::run(program); }
