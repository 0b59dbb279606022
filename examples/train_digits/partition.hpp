// SPDX-License-Identifier: Apache-2.0
// Which part of a whole belongs to a rank.
#pragma once

#include <cstddef>
#include <span>

namespace train_digits {

// The consecutive share of `whole` that belongs to `rank` of `ranks`. The shares of all ranks are disjoint,
// cover the whole in order, and differ in size by at most one; with more ranks than items some are empty.
template <class T>
std::span<T> share_of(std::span<T> whole, int rank, int ranks) noexcept {
  const std::size_t n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(rank);
  const std::size_t first = whole.size() * r / n, last = whole.size() * (r + 1) / n;
  return whole.subspan(first, last - first);
}

}  // namespace train_digits
