// SPDX-License-Identifier: Apache-2.0
// Two jobs, started apart: trainers, which have a matrix by rows, hand it every ten steps to servers, which have it by
// columns. They meet at a file; any store will do.
//   tutti-run -n 4 only_two_jobs train meeting & tutti-run -n 2 only_two_jobs serve meeting
#include <tutti/join.hpp>
#include <tutti/train/reshard.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

constexpr std::size_t rows = 1000, columns = 250;
constexpr int steps = 30, steps_between = 10;

tutti::task<> program(tutti::communicator world, bool trains, std::string file) {
  const auto store = co_await tutti::file_store::open(world.get_executor(), file, std::chrono::minutes(1));
  tutti::joined both = co_await tutti::join(world, "weights", *store);
  const tutti::joined_ranks trainers = trains ? both.here : both.there;
  const tutti::joined_ranks servers = trains ? both.there : both.here;

  const tutti::layout by_rows{.shape = {{{.size = rows, .parts = trainers.size}, {.size = columns}, {}}},
                              .first_rank = trainers.first};
  const tutti::layout by_columns{.shape = {{{.size = rows}, {.size = columns, .parts = servers.size}, {}}},
                                 .first_rank = servers.first};
  const tutti::reshard_plan plan(by_rows, by_columns, both.all.rank());
  std::vector<float> trained(by_rows.elements(both.all.rank()));    // empty on servers
  std::vector<float> served(by_columns.elements(both.all.rank()));  // empty on trainers

  for (int step = 1; step <= steps; ++step) {
    for (float& weight : trained) weight += 1;
    if (step % steps_between != 0) continue;
    co_await plan.move(both.all, trained, served);
    const auto right = std::ranges::count(served, static_cast<float>(step));
    if (!trains) std::printf("server %d: %td weights of step %d\n", world.rank(), right, step);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: only_two_jobs train|serve FILE"), 2;
  const bool trains = std::string_view(argv[1]) == "train";
  return tutti::run([=](tutti::communicator world) { return program(world, trains, argv[2]); });
}
