// SPDX-License-Identifier: Apache-2.0
// Bruck's all_gather run backwards: in each round every rank sends the partial sums of the blocks furthest
// ahead to a rank 2^k ahead of it, and adds what it receives. ceil(log2 P) rounds for any P, (P-1)/P n bytes
// each way: for small n. (Träff 2024, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms".)
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

#include <algorithm>
#include <bit>

namespace tutti::coll {

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
  const char* const in = static_cast<const char*>(r.input);
  move_bytes(turned, in + before, all - before);
  move_bytes(turned + (all - before), in, before);

  int have = size;
  int distance = static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)));
  auto received = c.scratch().take(at(std::max(size - distance, distance / 2)));
  for (; distance > 0; distance /= 2) {
    const int sent = have - distance;
    auto sending = c.send((rank + distance) % size, turned + at(distance), at(have) - at(distance));
    co_await c.receive((rank - distance + size) % size, received.data(), at(sent));
    co_await sending;
    combine(r.op, r.type, received.data(), turned, turned, at(sent) / r.element_bytes);
    have = distance;
  }
  move_bytes(r.data, turned, at(1));
}

}  // namespace tutti::coll
