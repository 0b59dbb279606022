// SPDX-License-Identifier: Apache-2.0
// How many rounds come next: checking, warming up, measuring. Rank 0 decides and tells the others.
#pragma once

#include "common/options.hpp"

#include <cstdint>
#include <limits>

namespace perf {

// What all ranks do together between two looks at the clock. Travels as bytes.
struct batch {
  std::uint64_t seed = 0;     // of the contents, which every batch has anew
  std::int64_t rounds = 0;    // 0: the size is done
  std::int64_t measured = 0;  // 1: its time counts
};

// First batches of one round, in which every message is checked in full; then batches that double until one
// lasts long enough for the clock to cost nothing, which is the warm-up; then measured ones, until the time
// or the iterations are used up. Pure: it is told what time it is.
class schedule {
 public:
  explicit schedule(const options& chosen) noexcept;

  batch next() noexcept;
  // The batch took `seconds`; since the first one `wall_seconds` have passed, filling and checking of buffers
  // included.
  void finished(const batch& done, double seconds, double wall_seconds) noexcept;

  static constexpr double batch_seconds =
      1e-3;  // of a measured batch, at least, unless one round takes longer
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
  int batches_ = 0;  // of the phase
  double warm_seconds_ = 0;
  double fastest_round_seconds_ = std::numeric_limits<double>::max();
  double measuring_since_ = 0;  // wall
};

}  // namespace perf
