// SPDX-License-Identifier: Apache-2.0
// How many rounds come next: checking, warm-up or measuring. Rank 0 decides and tells the others.
#pragma once

#include "common/options.hpp"

#include <cstdint>
#include <limits>

namespace perf {

// The work of all ranks between two readings of the clock. Sent as bytes.
struct batch {
  std::uint64_t seed = 0;     // of the contents; new for every batch
  std::int64_t rounds = 0;    // 0: this size is finished
  std::int64_t measured = 0;  // 1: the time counts
};

// The schedule has three phases. Checking: batches of one round with a full check of every message. Warm-up:
// batches that double until reading the clock costs nothing in comparison. Measuring: batches until the time
// or the iterations are used up. A pure function: the caller passes the time.
class schedule {
 public:
  explicit schedule(const options& chosen) noexcept;

  batch next() noexcept;
  // Records that the batch took `seconds`, and that `wall_seconds` have passed since the first one. The
  // latter include filling and checking of buffers.
  void finished(const batch& done, double seconds, double wall_seconds) noexcept;

  static constexpr double batch_seconds =
      1e-3;  // least length of a measured batch, unless one round is longer
  static constexpr int checking_batches = 8;
  static constexpr int fewest_measured_batches = 10;

 private:
  enum class phase { checking, warming_up, measuring, over };

  bool warm() const noexcept;
  void choose_batch() noexcept;

  options options_;
  phase phase_ = phase::checking;
  std::uint64_t seed_ = 0;
  std::int64_t rounds_ = 1;
  std::int64_t warm_rounds_ = 0;
  std::int64_t measured_rounds_ = 0;
  int batches_ = 0;  // of the current phase
  double warm_seconds_ = 0;
  double fastest_round_seconds_ = std::numeric_limits<double>::max();
  double measuring_since_ = 0;  // wall time
};

}  // namespace perf
