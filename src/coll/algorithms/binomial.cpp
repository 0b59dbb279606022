// SPDX-License-Identifier: Apache-2.0
// Binomial trees: ceil(log2 P) rounds. In round k, ranks exchange data with ranks 2^k nearer to the root.
#include "coll/algorithms.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::coll {

// The number of ranks that have the data doubles in every round. Every rank receives once, and the root sends
// at most ceil(log2 P) times the whole buffer.
task<> broadcast_binomial(collective c, std::byte* data, std::size_t bytes, int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  int mask = 1;
  while (mask < size && (relative & mask) == 0) mask *= 2;
  if (relative != 0) {
    co_await c.receive((relative - mask + root) % size, data, bytes);
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (relative + mask >= size) continue;
    co_await c.send((relative + mask + root) % size, data, bytes);
  }
}

// The ranks that still have data send all of it to a rank nearer to the root, which reduces it. Rounds of n
// bytes: for small n.
task<> reduce_binomial(collective c, reduce_call r, int root) {
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const std::size_t bytes = r.count * r.element_bytes;
  auto own = c.scratch().take(r.data == nullptr ? bytes : 0);
  if (r.data == nullptr) r.data = own.data();
  r.copy_input();
  auto lease = c.scratch().take(bytes);
  for (int mask = 1; mask < size; mask *= 2) {
    if ((relative & mask) != 0) {
      co_await c.send((relative - mask + root) % size, r.data, bytes);
      co_return;
    }
    if (relative + mask >= size) continue;
    co_await c.receive((relative + mask + root) % size, lease.data(), bytes);
    combine(r.op, r.type, r.data, lease.data(), r.data, r.count);
  }
}

// A rank sends all blocks it has collected. ceil(log2 P) messages at the root instead of P-1, but every block
// is copied on the way: for small even blocks of many ranks.
task<> gather_binomial(collective c, const std::byte* block, std::byte* data, blocks parts, int root) {
  const std::size_t block_bytes = parts.bytes(c.rank());
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  // Blocks in the order of the distance from the root, the own one first.
  int reach = 1;
  while (relative + reach < size && (relative & reach) == 0) reach *= 2;
  auto lease = c.scratch().take(at(relative == 0 ? size : std::min(reach, size - relative)));
  if (block_bytes > 0) std::memcpy(lease.data(), block, block_bytes);
  for (int mask = 1; mask < size; mask *= 2) {
    if ((relative & mask) != 0) {
      co_await c.send((relative - mask + root) % size, lease.data(), at(std::min(mask, size - relative)));
      co_return;
    }
    if (relative + mask >= size) continue;
    co_await c.receive((relative + mask + root) % size, lease.data() + at(mask),
                       at(std::min(mask, size - relative - mask)));
  }
  std::byte* const held = lease.data();
  std::rotate_copy(held, held + at(size - root), held + at(size), data);
}

// The gather run backwards: in every round a rank forwards half of its blocks, those of the ranks behind it.
task<> scatter_binomial(collective c, const std::byte* data, std::byte* block, blocks parts, int root) {
  const std::size_t block_bytes = parts.bytes(c.rank());
  const int size = c.size();
  const int relative = (c.rank() - root + size) % size;
  const auto at = [&](int n) { return static_cast<std::size_t>(n) * block_bytes; };
  int mask = 1;
  while (mask < size && (relative & mask) == 0) mask *= 2;
  const int held = std::min(mask, size - relative);
  auto lease = c.scratch().take(at(held));  // in the order of the distance from the root, the own one first
  if (relative == 0) {
    std::rotate_copy(data, data + at(root), data + at(size), lease.data());
  } else {
    co_await c.receive((relative - mask + root) % size, lease.data(), at(held));
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (relative + mask >= size) continue;
    co_await c.send((relative + mask + root) % size, lease.data() + at(mask),
                    at(std::min(mask, size - relative - mask)));
  }
  // Only now: the root's result may be part of its input.
  if (block_bytes > 0) std::memmove(block, lease.data(), block_bytes);
}

}  // namespace tutti::coll
