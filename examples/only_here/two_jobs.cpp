// SPDX-License-Identifier: Apache-2.0
// Two jobs, started apart, which meet at a file: trainers, each with all of a matrix, hand it every ten steps to
// servers, which have it by columns. A server dies after the first hand-over, a trainer after the second; all go on.
//   tutti-run -n 4 --on-failure continue only_two_jobs train meeting &
//   tutti-run -n 2 --on-failure continue only_two_jobs serve meeting
#include <tutti/join.hpp>
#include <tutti/train/reshard.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

constexpr std::size_t rows = 1000, columns = 250;

tutti::task<> hand_over(tutti::joined both, bool trains, int meeting, int* step) {
  const tutti::joined_ranks trainers = trains ? both.here : both.there;
  const tutti::joined_ranks servers = trains ? both.there : both.here;
  const int me = both.all.rank(), number = me - both.here.first;
  const tutti::layout by_rows{.shape = {{{.size = rows, .parts = trainers.size}, {.size = columns}, {}}},
                              .first_rank = trainers.first};
  const tutti::layout by_columns{.shape = {{{.size = rows}, {.size = columns, .parts = servers.size}, {}}},
                                 .first_rank = servers.first};
  const tutti::reshard_plan plan(by_rows, by_columns, me);
  std::vector<float> weights(trains ? rows * columns : 0), served(by_columns.elements(me));
  const std::size_t width = columns / servers.size, before = number * by_rows.elements(trainers.first);
  const auto given = std::span(weights).subspan(trains ? before : 0, by_rows.elements(me));
  co_await both.all.all_reduce(*step, tutti::max);  // a rank may have ended what failed on another
  for (; *step <= 30; *step += 10) {
    std::iota(weights.begin(), weights.end(), *step);  // stands for training, the same on all trainers
    co_await plan.move(both.all, given, served);
    std::size_t right = 0;
    for (std::size_t i = 0; i < served.size(); ++i)
      right += served[i] == i / width * columns + number * width + i % width + *step;
    if (!trains) std::printf("server %d: %zu weights of step %d\n", number, right, *step);
    co_await both.all.barrier();
    if (meeting == (trains ? 2 : 1) && number == both.here.size - 1) std::raise(SIGKILL);
  }
}

tutti::task<> program(tutti::communicator world, std::string job, std::string file) {
  const auto store = co_await tutti::file_store::open(world.get_executor(), file, std::chrono::minutes(1));
  int step = 10;  // is handed over next
  for (int meeting = 1; step <= 30; ++meeting) {
    const tutti::joined both = co_await tutti::join(world, "meeting " + std::to_string(meeting), *store);
    const auto ended = co_await tutti::as_result(hand_over(both, job == "train", meeting, &step));
    if (!ended.error) break;
    std::printf("%s: %s\n", job == "train" ? "trainers" : "servers", ended.message.c_str());
    world = co_await world.shrink();
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: only_two_jobs train|serve FILE"), 2;
  return tutti::run([=](tutti::communicator world) { return program(world, argv[1], argv[2]); });
}
