// SPDX-License-Identifier: Apache-2.0
// Partitioning a data set: shuffled by a seed that all ranks share, then cut by fractions. Nobody sends
// anything: every rank computes the same partition and uses its own part of it.
//   tutti-run -n 4 tutorial_partition
#include <tutti/train/partition.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr std::size_t images = 60'000;

// As many parts as ranks, and batches that together are as large as one of 128.
tutti::task<> partition_dataset(tutti::communicator world) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::vector<double> fractions(size, 1.0 / static_cast<double>(size));
  const tutti::data_partitioner partition(images, fractions, 1234);
  const std::span<const tutti::sample_index> mine = partition.use(world.rank());
  const std::size_t batch = std::max<std::size_t>(1, 128 / size);
  std::printf("Rank %d has %zu images in %zu batches of %zu\n", world.rank(), mine.size(),
              tutti::batches_in(mine.size(), batch), batch);

  // Each image belongs to one rank.
  std::vector<int> owners(images);
  for (const tutti::sample_index image : mine) ++owners[image];
  co_await world.all_reduce(owners, tutti::sum);
  bool once = true;
  for (const int count : owners) once = once && count == 1;
  if (world.rank() == 0) std::printf("every image belongs to one rank: %s\n", once ? "yes" : "NO");
}

// To train, to validate and to test with. Another seed is another shuffle.
void partition_by_purpose() {
  const std::vector<double> fractions{0.7, 0.2, 0.1};
  for (const unsigned seed : {1234u, 5678u}) {
    const tutti::data_partitioner partition(10, fractions, seed);
    std::printf("seed %u:", seed);
    for (int part = 0; part < partition.parts(); ++part) {
      std::printf(part == 0 ? "" : " |");
      for (const tutti::sample_index image : partition.use(part)) std::printf(" %u", image);
    }
    std::printf("\n");
  }
}

tutti::task<> run(tutti::communicator world) {
  co_await partition_dataset(world);
  if (world.rank() == 0) partition_by_purpose();
}

}  // namespace

int main() { return tutti::run(run); }
