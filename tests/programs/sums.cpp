// SPDX-License-Identifier: Apache-2.0
// Ranks that check each other, for launch/networks_test: sums of several sizes, a ring, and a barrier. The
// last line of each rank confirms its results. With an argument each rank first starts this program, with its
// own place and then alone.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
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

const char* how_ended(const std::string& command) {
  return std::system(command.c_str()) == 0 ? "went on" : "failed";
}

tutti::task<> inside(tutti::communicator world, std::string program) {
  const char* const in_its_place = how_ended(program);
  const char* const alone = how_ended("env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT " + program);
  std::printf("rank %d: inherited place %s, alone %s\n", world.rank(), in_its_place, alone);
  co_await sums(std::move(world));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return tutti::run(sums);
  return tutti::run([&](tutti::communicator world) { return inside(std::move(world), argv[0]); });
}
