// SPDX-License-Identifier: Apache-2.0
// grouping: how the ranks of one host are divided when they are too many for one collective segment.
//
// Each rank belongs to a group, whose ranks lie next to each other, and to a column, which has a rank of each group.
// What a group has combined is combined further along the columns, by all ranks of the group at once. The groups'
// sizes differ by one at most. Where one is larger, its last rank belongs to a column as a taker: the column has a rank
// of that group already, so this one only reads there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti::comm {

class grouping {
 public:
  struct place {
    int group = 0;
    int near = 0;  // its number in the group
    int column = 0;
    int across =
        0;  // its number in the column: the group's, or for takers one of those after the last group's
  };

  // Of ranks whose caches are named by `caches`; an empty name: not known. One group for each cache if all are known
  // and are used alike; otherwise groups and columns of about the same size. No group or column has more than `most`
  // ranks; if there are too many ranks for that, there are no groups.
  grouping(std::span<const std::string> caches, int most);

  int groups() const noexcept { return groups_; }
  const place& of(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)]; }
  // All ranks by group, and by their number in it.
  const std::vector<int>& order() const noexcept { return order_; }
  bool in_rank_order() const noexcept { return in_rank_order_; }  // order() is 0, 1, 2, …
  // The ranks of a group, by their number in it.
  std::span<const int> group(int number) const noexcept {
    return std::span(order_).subspan(first_of(number), static_cast<std::size_t>(size_of_group(number)));
  }
  // The number of columns: of ranks in a group without takers.
  int columns() const noexcept { return least_; }
  int size_of_column(int column) const noexcept {
    return groups_ + (takers_ > column ? (takers_ - column - 1) / least_ + 1 : 0);
  }
  int rank_at(int column, int across) const noexcept {
    const bool takes = across >= groups_;
    const int group = takes ? column + (across - groups_) * least_ : across;
    return order_[first_of(group) + static_cast<std::size_t>(takes ? least_ : column)];
  }

 private:
  int size_of_group(int number) const noexcept { return least_ + (number < takers_ ? 1 : 0); }
  std::size_t first_of(int group) const noexcept {
    return static_cast<std::size_t>(group * least_ + std::min(group, takers_));
  }

  int groups_ = 0;
  int least_ = 0;   // ranks of the smallest group
  int takers_ = 0;  // one in each of the first groups
  bool in_rank_order_ = true;
  std::vector<int> order_;
  std::vector<place> places_;  // by rank
};

}  // namespace tutti::comm
