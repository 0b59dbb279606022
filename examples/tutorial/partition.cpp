// SPDX-License-Identifier: Apache-2.0
// Partitions a data set: shuffles it by a seed that all ranks share, then cuts it by fractions. No message is
// needed: every rank computes the same partition and uses its own part.
//   tutti-run -n 4 tutorial_partition
//   tutti-run -n 4 tutorial_partition 0.5 0.5       other fractions than 0.7 0.2 0.1
#include <tutti/train/partition.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t images = 60'000;

// One part per rank, and batches that add up to 128.
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

// To train, to validate and to test with, for example. Another seed is another shuffle.
void partition_by_purpose(std::span<const double> fractions, bool print) {
  for (const unsigned seed : {1234u, 5678u}) {
    const tutti::data_partitioner partition(10, fractions, seed);
    if (!print) continue;
    std::printf("seed %u:", seed);
    for (int part = 0; part < partition.parts(); ++part) {
      std::printf(part == 0 ? "" : " |");
      for (const tutti::sample_index image : partition.use(part)) std::printf(" %u", image);
    }
    std::printf("\n");
  }
}

tutti::task<> run(tutti::communicator world, std::vector<double> fractions) {
  co_await partition_dataset(world);
  partition_by_purpose(fractions, world.rank() == 0);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<double> fractions;
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    fractions.push_back(std::strtod(argv[i], &end));
    if (end == argv[i] || *end != '\0') fractions.back() = std::nan("");  // the partitioner rejects NaN
  }
  if (fractions.empty()) fractions = {0.7, 0.2, 0.1};
  return tutti::run([&](tutti::communicator world) { return run(std::move(world), fractions); });
}
