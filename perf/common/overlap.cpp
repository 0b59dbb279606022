// SPDX-License-Identifier: Apache-2.0
#include "common/overlap.hpp"

#include "common/statistics.hpp"

#include <algorithm>

namespace perf {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point begin) noexcept {
  return std::chrono::duration<double>(clock::now() - begin).count();
}

}  // namespace

bool overlap_series::enough() const noexcept {
  const auto triples = static_cast<std::int64_t>(seconds_[part_both].size());
  if (options_.iterations > 0) return triples >= options_.iterations;
  const double spent = seconds_since(begin_);
  return triples >= fewest_triples && spent >= 3 * options_.seconds;
}

overlap_step overlap_series::next() noexcept {
  overlap_step step;
  step.seed = ++seed_;
  if (calibrated_ < calibrating_steps) {
    ++calibrated_;
    step.part = part_communication;
    return step;
  }
  if (calibrated_ == calibrating_steps) {
    ++calibrated_;
    compute_seconds_ = summarize(calibration_).median;
    begin_ = clock::now();
  }
  step.measured = 1;
  step.compute_seconds = compute_seconds_;
  // Next comes the part with the fewest runs.
  for (const overlap_part part : {part_communication, part_computation, part_both})
    if (step.part == part_over || seconds_[static_cast<std::size_t>(part)].size() <
                                      seconds_[static_cast<std::size_t>(step.part)].size())
      step.part = part;
  if (step.part == part_communication && enough()) step.part = part_over;
  return step;
}

void overlap_series::finished(const overlap_step& done, double seconds, const stopwatch& own) {
  if (done.measured == 0) {
    calibration_.push_back(seconds);
    return;
  }
  seconds_[static_cast<std::size_t>(done.part)].push_back(seconds);
  cpu_seconds_[static_cast<std::size_t>(done.part)] += own.use().cpu_seconds;
}

overlap_totals overlap_series::own_totals(std::int64_t faults) const noexcept {
  return {cpu_seconds_[0], cpu_seconds_[1], cpu_seconds_[2], static_cast<double>(faults)};
}

overlap_row overlap_series::row_of(const overlap_totals& of_all_ranks, int cores) const {
  overlap_row r;
  r.bytes = bytes_;
  r.mode = name_of(mode_);
  const std::array<summary, 3> times{summarize(seconds_[0]), summarize(seconds_[1]), summarize(seconds_[2])};
  r.triples = static_cast<std::int64_t>(seconds_[part_both].size());
  r.comm_us = 1e6 * times[part_communication].median;
  r.compute_us = 1e6 * times[part_computation].median;
  r.both_us = 1e6 * times[part_both].median;
  r.both_p10_us = 1e6 * times[part_both].p10;
  r.both_p90_us = 1e6 * times[part_both].p90;
  if (r.comm_us > 0) r.overlap = 1 - (r.both_us - r.compute_us) / r.comm_us;
  const double each = 1e6 / std::max(static_cast<double>(r.triples), 1.0);
  r.comm_cpu_us = each * of_all_ranks[part_communication];
  r.compute_cpu_us = each * of_all_ranks[part_computation];
  r.both_cpu_us = each * of_all_ranks[part_both];
  r.bound_us = std::max({r.comm_us, r.compute_us, (r.comm_cpu_us + r.compute_cpu_us) / std::max(cores, 1)});
  r.faults = static_cast<std::int64_t>(of_all_ranks[total_overlap_faults]);
  return r;
}

computation::computation() {
  // The first runs wake the core. The fastest had the fewest interruptions.
  constexpr std::int64_t sample = 200'000;
  for (int i = 0; i < 8; ++i) {
    const clock::time_point begin = clock::now();
    run(sample);
    steps_per_second_ =
        std::max(steps_per_second_, static_cast<double>(sample) / std::max(seconds_since(begin), 1e-9));
  }
}

std::int64_t computation::steps_for(double seconds) const noexcept {
  return static_cast<std::int64_t>(seconds * steps_per_second_);
}

double computation::run(std::int64_t steps) noexcept {
  double a = 1, b = 2, c = 3, d = 4;
  for (std::int64_t i = 0; i < steps; ++i) {
    a = a * 0.999 + 1;
    b = b * 0.998 + 1;
    c = c * 0.997 + 1;
    d = d * 0.996 + 1;
  }
  // clang removes the loop in spite of a store to an atomic that nothing reads: the calibration then took no time.
  const volatile double result = a + b + c + d;
  return result;
}

}  // namespace perf
