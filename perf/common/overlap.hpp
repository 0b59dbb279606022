// SPDX-License-Identifier: Apache-2.0
// overlap: how much of a communication hides behind a computation of the same length. This is the method
// without communication.
//
// Three parts alternate, so that changes of the machine affect all of them: communication alone, computation
// alone, both at once. overlap = 1 - (t_both - t_compute) / t_comm, of the medians.
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

// The next step of all ranks. Rank 0 decides, and sends it as bytes.
struct overlap_step {
  std::uint64_t seed = 0;
  std::int64_t part = part_over;
  std::int64_t measured = 0;
  double compute_seconds = 0;  // requested length of the computation
};

// Totals of one rank, or the sums over all.
using overlap_totals = std::array<double, 4>;
inline constexpr std::size_t total_overlap_faults = 3;  // after the CPU seconds of each part

class overlap_series {
 public:
  overlap_series(const options& chosen, std::size_t bytes, computing mode) noexcept
      : options_(chosen), bytes_(bytes), mode_(mode) {}

  overlap_step next() noexcept;
  // Records that the part took `seconds` on the slowest rank.
  void finished(const overlap_step& done, double seconds, const stopwatch& own);

  overlap_totals own_totals(std::int64_t faults) const noexcept;
  overlap_row row_of(const overlap_totals& of_all_ranks, int cores) const;

  static constexpr int calibrating_steps =
      5;  // of the communication alone; their median is the length of the computation
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

// Arithmetic in registers and first-level cache, so that it shares only the core with the communication.
class computation {
 public:
  computation();  // measures the speed of this core: some milliseconds

  // The amount of work that takes `seconds` on a free core.
  std::int64_t steps_for(double seconds) const noexcept;
  static double run(std::int64_t steps) noexcept;
  // The same in pieces of `every_seconds`; calls `between` after each.
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
