// SPDX-License-Identifier: Apache-2.0
// Ranks that check each other, for launch/networks_test: sums of several sizes, a ring, and a barrier. The
// last line of each rank confirms its results. With an argument they do so in a second world, too.
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

tutti::task<> sums(tutti::communicator world) {
  const int rank = world.rank(), size = world.size();
  bool right = true;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<double> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = rank + static_cast<double>(i % 7);
    co_await world.all_reduce(data, tutti::sum);
    for (std::size_t i = 0; i < count; ++i)
      right = right && data[i] == size * (size - 1) / 2 + size * static_cast<double>(i % 7);
  }

  std::vector<int> mine(100'000, rank), theirs(mine.size());
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  tutti::request sending = world.isend(mine, next);
  co_await world.recv(theirs, previous);
  co_await sending;
  right = right && std::accumulate(theirs.begin(), theirs.end(), 0L) == 100'000L * previous;

  co_await world.barrier();
  std::printf("rank %d of %d: %s\n", rank, size, right ? "right" : "wrong");
}

}  // namespace

int main(int argc, char**) {
  const int code = tutti::run(sums);
  return code != 0 || argc == 1 ? code : tutti::run(sums);
}
