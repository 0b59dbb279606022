// SPDX-License-Identifier: Apache-2.0
#include "common/series.hpp"

#include "common/statistics.hpp"

#include <algorithm>

namespace perf {

series::series(const options& chosen, std::size_t bytes, int operations_per_round)
    : schedule_(chosen), bytes_(bytes), operations_per_round_(operations_per_round) {}

void series::watched(const batch& b, const stopwatch& watch) noexcept {
  if (b.measured == 0) return;
  use_.cpu_seconds += watch.use().cpu_seconds;
  use_.sleeps += watch.use().sleeps;
}

void series::finished(const batch& b, double seconds) {
  schedule_.finished(b, seconds, std::chrono::duration<double>(clock::now() - begin_).count());
  if (b.measured == 0) return;
  rounds_ += b.rounds;
  seconds_ += seconds;
  batch_us_.push_back(1e6 * seconds / static_cast<double>(b.rounds * operations_per_round_));
}

totals series::own_totals(std::int64_t faults) const noexcept {
  totals own{};
  own[total_cpu_seconds] = use_.cpu_seconds;
  own[total_sleeps] = static_cast<double>(use_.sleeps);
  own[total_faults] = static_cast<double>(faults);
  return own;
}

row series::row_of(const totals& of_all_ranks) const {
  const double operations = static_cast<double>(rounds_ * operations_per_round_);
  const summary times = summarize(batch_us_);
  row r;
  r.bytes = bytes_;
  r.iterations = rounds_;
  r.operations = rounds_ * operations_per_round_;
  r.batches = static_cast<std::int64_t>(batch_us_.size());
  r.min_us = times.min;
  r.p10_us = times.p10;
  r.median_us = times.median;
  r.p90_us = times.p90;
  r.max_us = times.max;
  r.mean_us = 1e6 * seconds_ / std::max(operations, 1.0);
  r.gb_per_s = times.median > 0 ? static_cast<double>(bytes_) / times.median / 1e3 : 0;
  r.cpu_us = 1e6 * of_all_ranks[total_cpu_seconds] / std::max(operations, 1.0);
  r.sleeps = of_all_ranks[total_sleeps] / std::max(operations, 1.0);
  r.faults = static_cast<std::int64_t>(of_all_ranks[total_faults]);
  return r;
}

}  // namespace perf
