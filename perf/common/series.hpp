// SPDX-License-Identifier: Apache-2.0
// One size, from the first batch to its row: everything of the method that needs no communication.
//
// A program does, on every rank, in this order; what is in brackets is its own communication, outside the
// timed part:
//   batch b = s.next()                    [rank 0's goes to all]; until b.rounds is 0
//   fill the buffers                      [barrier]
//   watch.start(), b.rounds rounds, watch.stop()
//   [barrier: who is early must not take others' cores]
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

// Of one rank, or summed over all; an array so that it can be.
using totals = std::array<double, 3>;
enum total_of : std::size_t { total_cpu_seconds, total_sleeps, total_faults };

// Of what ranks say after each batch: the longest time, and what a barrier is judged by.
using maxima = std::array<double, 5>;
enum maximum_of : std::size_t { max_seconds, max_entered, max_minus_left, max_host, max_minus_host };

// This rank's part of the maxima, and what it makes of those of all: most workloads know from their buffers.
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

  // Of this rank: what the measured batches took, and what was wrong in any batch.
  totals own_totals(std::int64_t faults) const noexcept;
  row row_of(const totals& of_all_ranks) const;

 private:
  using clock = std::chrono::steady_clock;

  schedule schedule_;
  std::size_t bytes_;
  int operations_per_round_;
  clock::time_point begin_ = clock::now();
  std::vector<double> batch_us_;  // per operation, one for each measured batch
  std::int64_t rounds_ = 0;       // measured
  double seconds_ = 0;            // measured
  resource_use use_;
};

}  // namespace perf
