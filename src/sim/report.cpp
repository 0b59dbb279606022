// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <tutti/sim/simulation.hpp>

namespace tutti::sim {

bool report::stuck() const noexcept {
  return std::any_of(ranks.begin(), ranks.end(), [](const rank_report& r) { return r.how == ending::stuck; });
}

bool report::all_returned() const noexcept {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const rank_report& r) { return r.how == ending::returned; });
}

std::string report::text() const {
  std::string text =
      fmt::format("seed {}: {} ranks, {} us, {} frames with {} bytes, {} events, hash {:016x}{}\n", seed,
                  ranks.size(), static_cast<double>(time.count()) / 1000, frames, bytes, events, hash,
                  repeatable ? "" : " (real time was waited for: another run may differ)");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const rank_report& r = ranks[i];
    const std::string end = r.how == ending::returned ? fmt::format("returned {}", r.code)
                            : r.how == ending::threw  ? "threw: " + r.text
                            : r.how == ending::killed ? "was killed"
                                                      : "waits for ever: " + r.text;
    text += fmt::format("rank {} {}\n", i, end);
  }
  return text;
}

}  // namespace tutti::sim
