// SPDX-License-Identifier: Apache-2.0
// reshard-perf: a tensor that changes its layout by reshard_plan, beside gather to one rank and scatter from there. Both
// send the same kind of messages, in turns.
//   tutti-run -n 6 reshard-perf
#include "common/parse.hpp"

#include <tutti/counters.hpp>
#include <tutti/train/reshard.hpp>
#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int ranks_needed = 6;

struct wanted {
  std::size_t rows = 2048, columns = 2048;
  int turns = 15;
};

// What a rank has of a matrix whose elements are their own numbers. Computed without the library.
std::vector<std::int32_t> contents(const tutti::layout& l, int rank) {
  std::vector<std::int32_t> all;
  const int place = rank - l.first_rank;
  if (place < 0 || place >= l.ranks()) return all;
  const auto has = [](const tutti::dimension& d, std::size_t at, int part) {
    const auto parts = static_cast<std::size_t>(d.parts);
    const std::size_t block = d.block > 0 ? d.block : (d.size + parts - 1) / parts;
    return at / block % parts == static_cast<std::size_t>(part);
  };
  const auto& [rows, columns, one] = l.shape;
  for (std::size_t i = 0; i < rows.size; ++i) {
    if (!has(rows, i, place / columns.parts)) continue;
    for (std::size_t j = 0; j < columns.size; ++j)
      if (has(columns, j, place % columns.parts))
        all.push_back(static_cast<std::int32_t>(i * columns.size + j));
  }
  return all;
}

std::uint64_t bytes_moved(const tutti::communicator& world) {
  std::uint64_t all = 0;
  for (const tutti::peer_counters& p : tutti::peer_counters_of(world))
    if (p.rank != world.rank()) all += p.bytes_sent + p.bytes_received;
  return all;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns how many results were wrong.
tutti::task<int> measure(tutti::communicator world, std::string name, tutti::layout from, tutti::layout to,
                         wanted w) {
  using clock = std::chrono::steady_clock;
  const int me = world.rank();
  const tutti::layout whole{.shape = {{{.size = w.rows}, {.size = w.columns}, {}}},
                            .first_rank = to.first_rank};
  const tutti::reshard_plan direct(from, to, me), gather(from, whole, me), scatter(whole, to, me);
  const std::vector<std::int32_t> mine = contents(from, me), expected = contents(to, me);
  std::vector<std::int32_t> got(expected.size()), gathered(whole.elements(me));
  std::array<std::vector<double>, 2> times;
  std::vector<double> ratios;
  std::array<double, 2> megabytes{};
  int wrong = 0;
  for (int turn = 0; turn <= w.turns; ++turn) {
    std::array<double, 2> seconds{};
    for (const int way : {0, 1}) {
      std::ranges::fill(got, -1);
      std::ranges::fill(gathered, -1);
      co_await world.barrier();
      const std::uint64_t before = bytes_moved(world);
      const clock::time_point begin = clock::now();
      if (way == 0) {
        co_await direct.move(world, mine, got);
      } else {
        co_await gather.move(world, mine, gathered);
        co_await scatter.move(world, gathered, got);
      }
      std::array<double, 2> slowest = {std::chrono::duration<double>(clock::now() - begin).count(),
                                       static_cast<double>(bytes_moved(world) - before) * 1e-6};
      wrong += got == expected ? 0 : 1;
      co_await world.all_reduce(slowest, tutti::max);
      seconds[static_cast<std::size_t>(way)] = slowest[0];
      megabytes[static_cast<std::size_t>(way)] = slowest[1];
    }
    if (turn == 0) continue;  // connects
    for (const std::size_t way : {0, 1}) times[way].push_back(seconds[way] * 1e3);
    ratios.push_back(seconds[0] / seconds[1]);
  }
  co_await world.all_reduce(wrong, tutti::sum);
  const auto [least, most] = std::ranges::minmax(ratios);
  if (me == 0) {
    std::printf("%-28s %8.2f %8.2f ms, ratio %.2f (%.2f..%.2f); %6.1f %6.1f MB; %s\n", name.c_str(),
                median(times[0]), median(times[1]), median(ratios), least, most, megabytes[0], megabytes[1],
                wrong == 0 ? "right" : "WRONG");
    std::fflush(stdout);
  }
  co_return wrong;
}

tutti::task<int> measure_all(tutti::communicator world, wanted w) {
  if (world.size() < ranks_needed) {
    if (world.rank() == 0)
      std::fprintf(stderr, "reshard-perf needs %d ranks: tutti-run -n %d reshard-perf\n", ranks_needed,
                   ranks_needed);
    co_return world.rank() == 0 ? 2 : 0;
  }
  if (world.rank() == 0)
    std::printf(
        "%.1f MB; by reshard, then by gather and scatter: median of the slowest rank's times, bytes of the "
        "busiest rank in both directions\n",
        static_cast<double>(w.rows * w.columns * sizeof(std::int32_t)) * 1e-6);
  // Block-cyclic: as matrices are laid out for solvers.
  constexpr std::size_t cycle = 64;
  int wrong = 0;
  for (const auto& [givers, takers] : {std::pair(4, 2), std::pair(2, 3)}) {
    const tutti::layout by_rows{.shape = {{{.size = w.rows, .parts = givers}, {.size = w.columns}, {}}}};
    const tutti::layout rows_in_turn{.shape = {{{w.rows, givers, cycle}, {.size = w.columns}, {}}}};
    const tutti::layout to_rows{.shape = {{{.size = w.rows, .parts = takers}, {.size = w.columns}, {}}},
                                .first_rank = givers};
    const tutti::layout to_columns{.shape = {{{.size = w.rows}, {.size = w.columns, .parts = takers}, {}}},
                                   .first_rank = givers};
    const std::string ranks = std::to_string(givers) + " to " + std::to_string(takers) + ", ";
    wrong += co_await measure(world, ranks + "rows to rows", by_rows, to_rows, w);
    wrong += co_await measure(world, ranks + "rows to columns", by_rows, to_columns, w);
    wrong += co_await measure(world, ranks + "cyclic rows to columns", rows_in_turn, to_columns, w);
  }
  co_return wrong > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Changes the layout of a matrix in two ways, in turns.", "reshard-perf");
  wanted w;
  app.add_option("--rows", w.rows, "of 4 bytes an element")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--columns", w.columns, "")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--turns", w.turns, "of each way")->check(CLI::PositiveNumber)->capture_default_str();
  if (const std::optional<int> code = perf::parse(app, argc, argv)) return *code;
  return tutti::run([w](tutti::communicator world) { return measure_all(std::move(world), w); });
}
