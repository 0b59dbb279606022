// SPDX-License-Identifier: Apache-2.0
// Which contexts have been closed, in memory that does not grow with their number: their numbers are kept as
// ranges, and each rank gives out ascending ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace tutti::p2p {

class closed_contexts {
 public:
  // `ranks`: the size of the world. Communicator id: counter * ranks + rank that gave it out; contexts: 2 *
  // id and 2 * id + 1.
  explicit closed_contexts(std::uint32_t ranks) noexcept : ranks_(ranks) {}

  bool contains(std::uint32_t context) const noexcept {
    const std::uint64_t key = key_of(context);
    const auto above = ranges_.upper_bound(key);
    return above != ranges_.begin() && std::prev(above)->second >= key;
  }

  void add(std::uint32_t context) {
    const std::uint64_t key = key_of(context);
    if (contains(context)) return;
    auto above = ranges_.upper_bound(key);
    auto below = above == ranges_.begin() ? ranges_.end() : std::prev(above);
    if (below != ranges_.end() && below->second + 1 == key) {
      below->second = key;
    } else {
      below = ranges_.emplace_hint(above, key, key);
    }
    if (above != ranges_.end() && above->first == key + 1) join(below, above);
    if (ranges_.size() > most_ranges) forget_a_gap(key);
  }

  std::size_t ranges() const noexcept { return ranges_.size(); }

 private:
  using map = std::map<std::uint64_t, std::uint64_t>;  // first to last key
  static constexpr std::size_t most_ranges = 4096;

  // Consecutive for the contexts that one rank gives out one after the other.
  std::uint64_t key_of(std::uint32_t context) const noexcept {
    const std::uint32_t id = context / 2;
    return (std::uint64_t{id % ranks_} << 33) | (std::uint64_t{id / ranks_} * 2 + context % 2);
  }
  void join(map::iterator below, map::iterator above) noexcept {
    below->second = above->second;
    ranges_.erase(above);
  }
  // The oldest gap of the same giver: this rank is no member of what is in it, or would have opened it long
  // ago.
  void forget_a_gap(std::uint64_t key) noexcept {
    const auto first = ranges_.lower_bound(key >> 33 << 33);
    const auto second = std::next(first);
    if (second != ranges_.end() && second->first >> 33 == key >> 33) join(first, second);
  }

  std::uint32_t ranks_;
  map ranges_;
};

}  // namespace tutti::p2p
