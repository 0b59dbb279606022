// SPDX-License-Identifier: Apache-2.0
#include "common/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace perf {

schedule::schedule(const options& chosen) noexcept : options_(chosen) {}

batch schedule::next() noexcept {
  batch result;
  if (phase_ == phase::over) return result;
  result.seed = ++seed_;
  result.rounds = rounds_;
  result.measured = phase_ == phase::measuring ? 1 : 0;
  if (phase_ == phase::measuring && options_.iterations > 0)
    result.rounds = std::min(rounds_, options_.iterations - measured_rounds_);
  if (phase_ == phase::warming_up && options_.warmup >= 0)
    result.rounds = std::min(rounds_, std::max<std::int64_t>(options_.warmup - warm_rounds_, 1));
  return result;
}

bool schedule::warm() const noexcept {
  if (options_.warmup >= 0) return warm_rounds_ >= options_.warmup;
  return warm_seconds_ >= options_.seconds / 10;
}

// Chooses a batch of batch_seconds, but short enough for several batches if the iterations are limited.
void schedule::choose_batch() noexcept {
  rounds_ = std::max<std::int64_t>(1, std::llround(batch_seconds / std::max(fastest_round_seconds_, 1e-9)));
  if (options_.iterations > 0) {
    const std::int64_t fair = (options_.iterations + fewest_measured_batches - 1) / fewest_measured_batches;
    rounds_ = std::min(rounds_, std::max<std::int64_t>(1, fair));
  }
}

void schedule::finished(const batch& done, double seconds, double wall_seconds) noexcept {
  ++batches_;
  switch (phase_) {
    case phase::checking:
      if (batches_ < checking_batches) return;
      phase_ = phase::warming_up;
      batches_ = 0;
      return;
    case phase::warming_up: {
      warm_rounds_ += done.rounds;
      warm_seconds_ += seconds;
      // The fastest, because an interrupted batch would make all later ones too short.
      fastest_round_seconds_ = std::min(fastest_round_seconds_, seconds / static_cast<double>(done.rounds));
      const bool long_enough = seconds >= batch_seconds;
      // A warm-up of given rounds ends after them, and the batch keeps its current length.
      if (warm() && (long_enough || options_.warmup >= 0)) {
        choose_batch();
        phase_ = phase::measuring;
        batches_ = 0;
        measuring_since_ = wall_seconds;
      } else if (!long_enough) {
        rounds_ *= 2;
      }
      return;
    }
    case phase::measuring: {
      measured_rounds_ += done.rounds;
      if (options_.iterations > 0) {
        if (measured_rounds_ >= options_.iterations) phase_ = phase::over;
        return;
      }
      const double spent = wall_seconds - measuring_since_;
      // Long operations get enough batches, unless that takes too long.
      const bool enough = batches_ >= fewest_measured_batches || spent >= 4 * options_.seconds;
      if (spent >= options_.seconds && enough) phase_ = phase::over;
      return;
    }
    case phase::over:
      return;
  }
}

}  // namespace perf
