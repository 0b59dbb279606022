// SPDX-License-Identifier: Apache-2.0
// overlap: how much of a communication hides behind a computation of the same length. Everything of the
// method that needs no communication.
//
// Three parts take turns, so that what changes on the machine meets all of them: the communication alone, the
// computation alone, both at once. overlap = 1 - (t_both - t_compute) / t_comm, of the medians.
#pragma once

#include "common/options.hpp"
#include "common/report.hpp"
#include "common/stopwatch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

enum overlap_part : std::int64_t { part_communication, part_computation, part_both, part_over };

// What all ranks do next. Rank 0 decides; travels as bytes.
struct overlap_step {
  std::uint64_t seed = 0;
  std::int64_t part = part_over;
  std::int64_t measured = 0;
  double compute_seconds = 0;  // how long the computation is to be
};

// Of one rank, or summed over all.
using overlap_totals = std::array<double, 4>;
inline constexpr std::size_t total_overlap_faults = 3;  // before it the CPU seconds of each part

class overlap_series {
 public:
  overlap_series(const options& chosen, std::size_t bytes, computing mode) noexcept
      : options_(chosen), bytes_(bytes), mode_(mode) {}

  overlap_step next() noexcept;
  // The part took `seconds` on the slowest rank.
  void finished(const overlap_step& done, double seconds, const stopwatch& own);

  overlap_totals own_totals(std::int64_t faults) const noexcept;
  overlap_row row_of(const overlap_totals& of_all_ranks, int cores) const;

  static constexpr int calibrating_steps =
      5;  // of the communication alone: its median is the computation's length
  static constexpr int fewest_triples = 5;

 private:
  bool enough() const noexcept;

  options options_;
  std::size_t bytes_;
  computing mode_;
  std::uint64_t seed_ = 0;
  int calibrated_ = 0;
  double compute_seconds_ = 0;
  std::vector<double> calibration_;
  std::array<std::vector<double>, 3> seconds_;  // of each part
  std::array<double, 3> cpu_seconds_{};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Arithmetic in registers and first-level cache: it shares nothing with the communication but the core.
class computation {
 public:
  computation();  // takes some milliseconds: finds out how fast this core is

  // So much work as takes `seconds` on a core of its own.
  std::int64_t steps_for(double seconds) const noexcept;
  static double run(std::int64_t steps) noexcept;
  // The same in pieces of `every_seconds`, with a call of `between` after each.
  template <class Between>
  void run_in_pieces(double seconds, double every_seconds, Between between) const {
    std::int64_t left = steps_for(seconds);
    const std::int64_t piece = steps_for(every_seconds) + 1;
    for (; left > 0; left -= piece) {
      run(left < piece ? left : piece);
      between();
    }
  }

 private:
  double steps_per_second_ = 0;
};

}  // namespace perf
