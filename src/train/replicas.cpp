// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/replicas.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tutti/error.hpp>
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
  std::uint64_t most = all.front();
  for (const std::uint64_t of_rank : all)
    if (times[of_rank] > times[most]) most = of_rank;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != most) check.differ.push_back(static_cast<int>(rank));
  co_return check;
}

task<> detail::expect_one_layout(communicator c, std::uint64_t layout, std::exception_ptr refused) {
  const std::array<std::uint64_t, 2> mine{layout, refused != nullptr ? 1U : 0U};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(c.size()));
  co_await c.all_gather(mine, all);
  std::vector<std::size_t> others;
  int refuses = -1;
  std::size_t first = 0;  // the first rank that has a layout: a rank that refuses has none
  for (std::size_t r = 0; r < all.size() / 2; ++r) {
    const std::uint64_t theirs = all[2 * r];
    if (all[2 * first] == 0) first = r;
    if (theirs != 0 && theirs != all[2 * first]) others.push_back(r);
    if (all[2 * r + 1] != 0) refuses = static_cast<int>(r);
  }
  if (!others.empty())
    throw error(
        errc::mismatch,
        fmt::format(
            "data_parallel: rank {} registered other gradients, or passed other options, than rank {}: all "
            "ranks make the same model with the same options and a hook of the same kind, or none",
            fmt::join(others, ", "), first));
  if (refused) std::rethrow_exception(refused);
  if (refuses >= 0)
    throw error(errc::mismatch,
                fmt::format("data_parallel: create() was refused on rank {}, whose error says why", refuses));
}

}  // namespace tutti
