// SPDX-License-Identifier: Apache-2.0
// Collectives of blocks of different sizes: the block of rank r has r + 1 elements.
//   tutti-run -n 4 tutorial_uneven
#include <cstdio>
#include <numeric>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

std::string text(const std::vector<int>& v) {
  std::string words;
  for (const int x : v) words += (words.empty() ? "" : " ") + std::to_string(x);
  return words;
}

// Rank 0 prints for all, in the order of the ranks.
tutti::task<> show(tutti::communicator world, std::string what, std::vector<int> data) {
  const std::vector<std::string> all = co_await tutti::gather_object(world, text(data), 0);
  for (std::size_t r = 0; r < all.size(); ++r)
    std::printf("%s: rank %zu has [%s]\n", what.c_str(), r, all[r].c_str());
}

tutti::task<> run(tutti::communicator world) {
  const int rank = world.rank();
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> counts(size);
  std::iota(counts.begin(), counts.end(), 1);
  const std::size_t own = counts[static_cast<std::size_t>(rank)], total = size * (size + 1) / 2;

  std::vector<int> blocks(rank == 0 ? total : 0), block(own);
  std::iota(blocks.begin(), blocks.end(), 0);
  co_await world.scatter_v(blocks, counts, block, 0);
  co_await show(world, "scatter_v", block);

  std::vector<int> gathered(rank == 0 ? total : 0);
  co_await world.gather_v(block, gathered, counts, 0);
  co_await show(world, "gather_v", gathered);

  std::vector<int> all(total);
  co_await world.all_gather_v(block, all, counts);
  co_await show(world, "all_gather_v", all);

  co_await world.reduce_scatter_v(all, counts, block, tutti::sum);
  co_await show(world, "reduce_scatter_v", block);

  // Sends r + 1 elements to each rank r, and receives `own` from each.
  const std::vector<std::size_t> from_each(size, own);
  const std::vector<int> out(total, rank);
  std::vector<int> in(size * own);
  co_await world.all_to_all_v(out, counts, in, from_each);
  co_await show(world, "all_to_all_v", in);
}

}  // namespace

int main() { return tutti::run(run); }
