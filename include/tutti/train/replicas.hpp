// SPDX-License-Identifier: Apache-2.0
// compare_replicas: checks that the copies of a model on all ranks are bit for bit the same.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// Hashes bits, not values: -0.0 and 0.0 differ. `before` is the hash of earlier pieces.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before = 0xcbf29ce484222325U) noexcept;

// The result of a comparison.
struct replica_check {
  // The hash of this rank.
  std::uint64_t hash = 0;
  // Ranks whose hash differs from that of most ranks, ascending; the same list on every rank.
  std::vector<int> differ;
  // Whether all ranks have the same hash.
  bool agree() const noexcept { return differ.empty(); }
};

// Compares the replicas of all ranks. Collective: all ranks of `c` call it, with the same order of pieces.
// Cost: one pass over the values, and eight bytes from each rank.
task<replica_check> compare_replicas(communicator c, std::vector<std::span<const float>> pieces);
inline task<replica_check> compare_replicas(communicator c, std::span<const float> values) {
  return compare_replicas(std::move(c), std::vector<std::span<const float>>{values});
}
// Compares replicas that were hashed by any other function. Collective.
// Cost: eight bytes from each rank.
task<replica_check> compare_hashes(communicator c, std::uint64_t hash);

}  // namespace tutti
