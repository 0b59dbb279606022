// SPDX-License-Identifier: Apache-2.0
// Bruck's algorithms, and the barrier of their pattern: ceil(log2 P) rounds for any P, in which distances
// double. (Bruck et al. 1997.)
#include "coll/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::coll {

// Dissemination barrier: in round k every rank sends to the rank 2^k ahead and receives from the rank 2^k
// behind. ceil(log2 P) rounds, each one empty message each way. (Hensgen, Finkel, Manber 1988.)
task<> barrier_dissemination(collective c) {
  for (int distance = 1; distance < c.size(); distance *= 2) {
    auto telling = c.send(c.ahead(distance), nullptr, 0);
    co_await c.receive(c.ahead(-distance), nullptr, 0);
    co_await telling;
  }
}

// In round k every rank sends all blocks it has to the rank 2^k behind it. One copy at the end puts the
// blocks in place. For small even blocks.
task<> all_gather_bruck(collective c, const std::byte* block, std::byte* data, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t block_bytes = parts.bytes(rank);
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  auto lease = c.scratch().take(at(size));
  std::byte* const turned = lease.data();  // the own block first, then those of the following ranks
  if (block_bytes > 0) std::memcpy(turned, block, block_bytes);
  for (int have = 1; have < size; have *= 2) {
    const int wanted = std::min(have, size - have);
    auto sending = c.send(c.ahead(-have), turned, at(wanted));
    co_await c.receive(c.ahead(have), turned + at(have), at(wanted));
    co_await sending;
  }
  std::rotate_copy(turned, turned + at(size - rank), turned + at(size), data);
}

// Blocks are sorted by their distance to go. In round k all blocks whose distance has bit k set travel 2^k
// ranks together. Rounds of n/2 bytes instead of P-1 messages: for small even blocks.
task<> all_to_all_bruck(collective c, const std::byte* data, blocks parts, std::byte* result, blocks) {
  const std::size_t block_bytes = parts.bytes(c.rank());
  if (block_bytes == 0) co_return;
  const int size = c.size();
  const int rank = c.rank();
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  auto lease = c.scratch().take(at(size));
  auto travelling = c.scratch().take(at(2 * ((size + 1) / 2)));
  std::byte* const sorted = lease.data();  // by distance to go
  std::byte* const out = travelling.data();
  std::byte* const in = travelling.data() + at((size + 1) / 2);
  std::rotate_copy(data, data + at(rank), data + at(size), sorted);
  for (int mask = 1; mask < size; mask *= 2) {
    int n = 0;
    for (int d = 1; d < size; ++d)
      if ((d & mask) != 0) std::memcpy(out + at(n++), sorted + at(d), block_bytes);
    auto sending = c.send(c.ahead(mask), out, at(n));
    co_await c.receive(c.ahead(-mask), in, at(n));
    co_await sending;
    n = 0;
    for (int d = 1; d < size; ++d)
      if ((d & mask) != 0) std::memcpy(sorted + at(d), in + at(n++), block_bytes);
  }
  // A block that has travelled d ranks comes from the rank d behind.
  for (int d = 0; d < size; ++d) std::memcpy(result + at(c.ahead(-d)), sorted + at(d), block_bytes);
}

// The all_gather run backwards: in each round every rank sends the partial sums of the blocks furthest ahead
// to a rank 2^k ahead of it, and adds what it receives. (P-1)/P n bytes each way: for small n. (Träff 2024,
// "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms".)
task<> reduce_scatter_bruck(collective c, reduce_call r, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t all = r.count * r.element_bytes;
  const std::size_t before = parts.begin(rank);
  // Where the block of the rank `n` ahead begins in `turned`.
  const auto at = [&](int n) {
    return rank + n < size ? parts.begin(rank + n) - before : all - before + parts.begin(rank + n - size);
  };
  auto lease = c.scratch().take(all);
  std::byte* const turned = lease.data();  // the own block first, then those of the following ranks
  std::rotate_copy(r.input, r.input + before, r.input + all, turned);

  int have = size;
  int distance = static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)));
  auto received = c.scratch().take(at(std::max(size - distance, distance / 2)));
  for (; distance > 0; distance /= 2) {
    const int sent = have - distance;
    auto sending = c.send(c.ahead(distance), turned + at(distance), at(have) - at(distance));
    co_await c.receive(c.ahead(-distance), received.data(), at(sent));
    co_await sending;
    combine(r.op, r.type, received.data(), turned, turned, at(sent) / r.element_bytes);
    have = distance;
  }
  move_bytes(r.data, turned, at(1));
}

}  // namespace tutti::coll
