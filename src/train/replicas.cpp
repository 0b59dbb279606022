// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/replicas.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace tutti {

// FNV-1a, by words of eight bytes: byte by byte it takes longer than the step whose result it checks.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
  constexpr std::uint64_t prime = 0x100000001b3U;
  std::uint64_t hash = before;
  while (bytes.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::copy_n(bytes.data(), sizeof word, reinterpret_cast<std::byte*>(&word));
    hash = (hash ^ word) * prime;
    hash ^= hash >> 32;  // the upper bits of a word reach the lower bits of the hash
    bytes = bytes.subspan(sizeof word);
  }
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * prime;
  return hash;
}

task<replica_check> compare_replicas(communicator c, std::vector<std::span<const float>> pieces) {
  std::uint64_t hash = hash_of({});
  for (const std::span<const float> piece : pieces) hash = hash_of(std::as_bytes(piece), hash);
  replica_check check = co_await compare_hashes(std::move(c), hash);
  co_return check;
}

task<replica_check> compare_hashes(communicator c, std::uint64_t hash) {
  replica_check check;
  check.hash = hash;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(c.size()));
  co_await c.all_gather(check.hash, all);
  std::map<std::uint64_t, int> times;
  for (const std::uint64_t of_rank : all) ++times[of_rank];
  // Ties go to the first rank's hash, so that all ranks agree.
  const auto how_often = [&times](std::uint64_t of_rank) { return times[of_rank]; };
  const std::uint64_t most = *std::ranges::max_element(all, {}, how_often);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != most) check.differ.push_back(static_cast<int>(rank));
  co_return check;
}

}  // namespace tutti
