// SPDX-License-Identifier: Apache-2.0
// Whether the copies that ranks train are still the same, bit for bit.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// Over bits and not values: -0.0 and 0.0 differ. Begin with `before` = the hash of what comes before to hash
// in pieces.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before = 0xcbf29ce484222325U) noexcept;

struct replica_check {
  std::uint64_t hash = 0;  // of this rank
  std::vector<int>
      differ;  // the ranks whose hash is not that of most ranks, ascending; the same on every rank
  bool agree() const noexcept { return differ.empty(); }
};

// Collective: every rank of `c` calls it with its replica, in the same order of pieces. Completes with what
// is said above, when all have. Costs a pass over the values and eight bytes of each rank.
task<replica_check> compare_replicas(communicator c, std::vector<std::span<const float>> pieces);
inline task<replica_check> compare_replicas(communicator c, std::span<const float> values) {
  return compare_replicas(std::move(c), std::vector<std::span<const float>>{values});
}
// The same of replicas that were hashed elsewhere, by whatever function. Costs eight bytes of each rank.
task<replica_check> compare_hashes(communicator c, std::uint64_t hash);

namespace detail {
// Collective: throws errc::mismatch, on all ranks, where not all have registered gradients of one layout.
task<> expect_one_layout(communicator c, std::uint64_t layout);
}  // namespace detail

}  // namespace tutti
