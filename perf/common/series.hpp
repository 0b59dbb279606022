// SPDX-License-Identifier: Apache-2.0
// One size, from the first batch to its row: the method without communication.
//
// Every rank takes these steps in this order. Brackets mark communication outside the timed part:
//   batch b = s.next()                    [rank 0 sends it to all]; until b.rounds is 0
//   fill the buffers                      [barrier]
//   watch.start(), b.rounds rounds, watch.stop()
//   [barrier: early ranks must not take the cores of others]
//   check the buffers, s.finished(b, the longest time [maxima over all ranks] of those that keep it)
//   at the end row_of(the sums [over all ranks] of the totals)
#pragma once

#include "common/report.hpp"
#include "common/schedule.hpp"
#include "common/stopwatch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

// Totals of one rank, or the sums over all. An array, so that a library can reduce it.
using totals = std::array<double, 3>;
enum total_of : std::size_t { total_cpu_seconds, total_sleeps, total_faults };

// Values of which each batch takes the maximum over all ranks: the longest time, and the times of a barrier.
using maxima = std::array<double, 5>;
enum maximum_of : std::size_t { max_seconds, max_entered, max_minus_left, max_host, max_minus_host };

// Fills in this rank's maxima, and judges those of all ranks. Most workloads check only their buffers.
template <class Workload>
maxima own_maxima(const Workload& data, const stopwatch& watch) noexcept {
  maxima own{};
  own[max_seconds] = data.keeps_time() ? watch.seconds() : 0;
  if constexpr (requires { data.tell(own); }) data.tell(own);
  return own;
}
template <class Workload>
void judge(Workload& data, const maxima& all) noexcept {
  if constexpr (requires { data.judge(all); }) data.judge(all);
}

class series {
 public:
  series(const options& chosen, std::size_t bytes, int operations_per_round);

  batch next() noexcept { return schedule_.next(); }
  void watched(const batch& b, const stopwatch& watch) noexcept;
  void finished(const batch& b, double seconds);

  // This rank's totals of the measured batches, with `faults` of all batches.
  totals own_totals(std::int64_t faults) const noexcept;
  row row_of(const totals& of_all_ranks) const;

 private:
  using clock = std::chrono::steady_clock;

  schedule schedule_;
  std::size_t bytes_;
  int operations_per_round_;
  clock::time_point begin_ = clock::now();
  std::vector<double> batch_us_;  // per operation; one value for each measured batch
  std::int64_t rounds_ = 0;       // measured
  double seconds_ = 0;            // measured
  resource_use use_;
};

}  // namespace perf
