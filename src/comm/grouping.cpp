// SPDX-License-Identifier: Apache-2.0
#include "comm/grouping.hpp"

#include <algorithm>
#include <map>

namespace tutti::comm {
namespace {

// The number of ranks that a rank reads from if there are so many groups; 0: a group or a column is too large.
int reads(int ranks, int groups, int most) noexcept {
  const int least = ranks / groups, takers = ranks % groups;
  const int group = least + (takers > 0 ? 1 : 0);
  const int column = groups + (takers + least - 1) / least;
  return group <= most && column <= most ? group + column : 0;
}

}  // namespace

grouping::grouping(std::span<const std::string> caches, int most)
    : order_(caches.size()), places_(caches.size()) {
  const int ranks = static_cast<int>(caches.size());
  std::map<std::string, std::vector<int>> by_cache;
  for (int r = 0; r < ranks; ++r) by_cache[caches[static_cast<std::size_t>(r)]].push_back(r);
  const auto [smallest, largest] =
      std::ranges::minmax_element(by_cache, {}, [](const auto& cache) { return cache.second.size(); });
  const int known = by_cache.contains("") ? 0 : static_cast<int>(by_cache.size());
  if (known > 1 && 2 * known <= ranks && largest->second.size() <= smallest->second.size() + 1 &&
      reads(ranks, known, most) > 0) {
    groups_ = known;
  } else {
    for (int groups = 2, fewest = 0; 2 * groups <= ranks; ++groups) {
      const int here = reads(ranks, groups, most);
      if (here == 0 || (fewest > 0 && here >= fewest)) continue;
      fewest = here;
      groups_ = groups;
    }
  }
  if (groups_ == 0) return;
  least_ = ranks / groups_;
  takers_ = ranks % groups_;

  std::vector<const std::vector<int>*> sorted;  // the larger ones first, as the groups are
  for (const auto& cache : by_cache) sorted.push_back(&cache.second);
  std::ranges::sort(sorted, [&](const auto* a, const auto* b) {
    return groups_ == known && a->size() != b->size() ? a->size() > b->size() : a->front() < b->front();
  });
  auto end = order_.begin();
  for (const auto* cache : sorted) end = std::ranges::copy(*cache, end).out;

  auto next = order_.begin();
  for (int g = 0; g < groups_; ++g) {
    for (int i = 0; i < size_of_group(g); ++i) {
      const bool takes = i == least_;  // the last of a larger group
      places_[static_cast<std::size_t>(*next++)] = {g, i, takes ? g % least_ : i,
                                                    takes ? groups_ + g / least_ : g};
    }
  }
  in_rank_order_ = std::ranges::is_sorted(order_);
}

}  // namespace tutti::comm
