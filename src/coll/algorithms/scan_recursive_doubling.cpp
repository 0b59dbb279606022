// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: after round k a rank has the reduction of itself and the 2^k - 1 ranks before it, and
// sends it 2^k ranks on. ceil(log2 P) rounds of n bytes. (Hillis, Steele 1986.) Inclusive: `data` becomes the
// reduction of ranks 0 to this one. Exclusive: the reduction of ranks 0 to the one before is written to
// `before`; that of rank 0 keeps its contents.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"
#include "coll/reduce.hpp"

#include <cstring>
#include <optional>

namespace tutti::coll {

task<> scan_recursive_doubling(collective c, reduce_call r, void* before) {
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t bytes = r.count * r.element_bytes;
  auto lease = c.scratch().take(2 * bytes);
  std::byte* const theirs = lease.data();
  // Data that are being sent must not change.
  std::byte* const leaving = lease.data() + bytes;
  bool first = true;
  for (int distance = 1; distance < size; distance *= 2) {
    std::optional<p2p::receiving> receiving;
    if (rank >= distance)
      receiving.emplace(made_in_place{[&] { return c.receive(rank - distance, theirs, bytes); }});
    std::optional<p2p::sending> sending;
    if (rank + distance < size) {
      if (bytes > 0) std::memcpy(leaving, r.data, bytes);
      sending.emplace(made_in_place{[&] { return c.send(rank + distance, leaving, bytes); }});
    }
    if (receiving) co_await *receiving;
    if (sending) co_await *sending;
    if (!receiving) continue;
    combine(r.op, r.type, theirs, r.data, r.data, r.count);
    if (before == nullptr) continue;
    if (first && bytes > 0) std::memcpy(before, theirs, bytes);
    if (!first) combine(r.op, r.type, theirs, before, before, r.count);
    first = false;
  }
}

}  // namespace tutti::coll
