// SPDX-License-Identifier: Apache-2.0
// Every collective once, on vectors small enough to print. Blocks of different sizes are in uneven.cpp.
//   tutti-run -n 4 tutorial_collectives
#include <cstdio>
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

  std::vector<int> data(2, rank == 0 ? 7 : 0);
  co_await world.broadcast(data, 0);
  co_await show(world, "broadcast", data);

  std::vector<int> total(1, rank + 1);
  co_await world.reduce(total, tutti::sum, 0);
  co_await show(world, "reduce", total);

  std::vector<int> all(1, rank + 1);
  co_await world.all_reduce(all, tutti::sum);
  co_await show(world, "all_reduce", all);

  std::vector<int> pieces;
  if (rank == 0)
    for (std::size_t i = 0; i < size; ++i) pieces.push_back(static_cast<int>(10 * i));
  std::vector<int> piece(1);
  co_await world.scatter(pieces, piece, 0);
  co_await show(world, "scatter", piece);

  std::vector<int> gathered(rank == 0 ? size : 0);
  co_await world.gather(piece, gathered, 0);
  co_await show(world, "gather", gathered);

  std::vector<int> everything(size);
  co_await world.all_gather(piece, everything);
  co_await show(world, "all_gather", everything);

  const std::vector<int> contributions(size, rank);
  std::vector<int> mine(1);
  co_await world.reduce_scatter(contributions, mine, tutti::sum);
  co_await show(world, "reduce_scatter", mine);

  std::vector<int> out(size), in(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = 10 * rank + static_cast<int>(i);
  co_await world.all_to_all(out, in);
  co_await show(world, "all_to_all", in);

  std::vector<int> prefix(1, rank + 1), before(1);
  co_await world.exclusive_scan(prefix, before, tutti::sum);
  co_await world.scan(prefix, prefix, tutti::sum);
  co_await show(world, "scan", prefix);
  co_await show(world, "exclusive_scan", before);

  co_await world.barrier();
  if (rank == 0) std::puts("barrier: all are here");
}

}  // namespace

int main() { return tutti::run(run); }
