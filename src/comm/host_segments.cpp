// SPDX-License-Identifier: Apache-2.0
#include "comm/host_segments.hpp"

#include "base/env.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::comm {
namespace {

std::vector<int> all_of(std::size_t ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> group_of(const grouping& groups, int rank) {
  const std::span<const int> ranks = groups.group(groups.of(rank).group);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> column_of(const grouping& groups, int rank) {
  const int column = groups.of(rank).column;
  std::vector<int> ranks;
  for (int i = 0; i < groups.size_of_column(column); ++i) ranks.push_back(groups.rank_at(column, i));
  return ranks;
}

std::vector<int> in_world(std::span<const int> members, const std::vector<int>& ranks) {
  std::vector<int> there;
  for (const int rank : ranks) there.push_back(members[static_cast<std::size_t>(rank)]);
  return there;
}

}  // namespace

host_segments::level::level(core::loop& loop, transport::neighbours& near, std::span<const int> members,
                            std::vector<int> of, int rank)
    : ranks(std::move(of)), own(number_of(rank)), segment(loop, near, in_world(members, ranks), own) {}

int host_segments::level::number_of(int rank) const noexcept {
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
}

host_segments::host_segments(core::loop& loop, transport::neighbours& near, std::span<const int> members,
                             std::unique_ptr<grouping> groups, int rank)
    : groups_(std::move(groups)),
      near_(loop, near, members, groups_ == nullptr ? all_of(members.size()) : group_of(*groups_, rank),
            rank) {
  if (groups_ != nullptr)
    across_ = std::make_unique<level>(loop, near, members, column_of(*groups_, rank), rank);
}

std::unique_ptr<host_segments> host_segments::make(core::loop& loop, transport::neighbours& near,
                                                   std::span<const int> members,
                                                   std::span<const std::string> caches, int rank) {
  std::unique_ptr<grouping> groups;
  if (std::cmp_greater(members.size(), most_flat_ranks())) {
    groups = std::make_unique<grouping>(caches, collective_segment::most_ranks);
    if (groups->groups() == 0) return nullptr;
  }
  return std::unique_ptr<host_segments>(new host_segments(loop, near, members, std::move(groups), rank));
}

int host_segments::most_flat_ranks() {
  return static_cast<int>(base::env_integer("TUTTI_FLAT_RANKS", 2, collective_segment::most_ranks)
                              .value_or(limits::collectives::flat_ranks));
}

int host_segments::waits_for(std::uint32_t sequence) const noexcept {
  for (const level* const l : {&near_, static_cast<const level*>(across_.get())})
    if (l != nullptr)
      if (const int number = l->segment.waits_for(sequence); number >= 0)
        return l->ranks[static_cast<std::size_t>(number)];
  return -1;
}

void host_segments::rank_gone(int rank, errc why, const std::string& text) noexcept {
  for (level* const l : {&near_, across_.get()})
    if (l != nullptr)
      if (const int number = l->number_of(rank); number >= 0) l->segment.rank_gone(number, why, text);
}

}  // namespace tutti::comm
