// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <tutti/gpu/data_parallel.hpp>
#include <utility>

namespace tutti::gpu {
namespace {

constexpr std::size_t bytes_hashed_at_a_time = std::size_t{4} << 20;  // of whole words, as hash_of() has them

}  // namespace

task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after) {
  std::uint64_t hash = hash_of({});
  std::size_t most = 0;
  for (const device_values& piece : pieces)
    most = std::max(most, std::min(piece.bytes(), bytes_hashed_at_a_time));
  const pinned_buffer<std::byte> part(after.on(), most);
  for (const device_values& piece : pieces) {
    const device_span<std::byte> bytes(static_cast<std::byte*>(piece.data()), piece.bytes());
    for (std::size_t at = 0; at < bytes.size(); at += bytes_hashed_at_a_time) {
      const std::size_t n = std::min(bytes_hashed_at_a_time, bytes.size() - at);
      co_await after.download(part, bytes.subspan(at, n));
      hash = hash_of(std::span<const std::byte>(part.data(), n), hash);
    }
  }
  replica_check check = co_await compare_hashes(std::move(c), hash);
  co_return check;
}

}  // namespace tutti::gpu
