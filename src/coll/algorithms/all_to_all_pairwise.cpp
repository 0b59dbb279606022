// SPDX-License-Identifier: Apache-2.0
// Pairwise: every block goes directly to its rank. In step k a rank sends to the rank k ahead and receives
// from the rank k behind, a few steps at a time. P-1 messages, no copy on the way. Blocks may be uneven.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"

namespace tutti::coll {

task<> exchange_blocks(collective c, const void* data, blocks out_parts, void* result, blocks in_parts) {
  const int size = c.size();
  const char* const out = static_cast<const char*>(data);
  char* const in = static_cast<char*>(result);
  sends_in_flight sends;
  receives_in_flight receives;
  for (int distance = 1; distance < size; ++distance) {
    const int to = (c.rank() + distance) % size;
    const int from = (c.rank() - distance + size) % size;
    co_await receives.make_room();
    receives.start([&] { return c.receive(from, in + in_parts.begin(from), in_parts.bytes(from)); });
    co_await sends.make_room();
    sends.start([&] { return c.send(to, out + out_parts.begin(to), out_parts.bytes(to)); });
  }
  co_await receives.drain();
  co_await sends.drain();
}

task<> all_to_all_pairwise(collective c, const void* data, blocks out_parts, void* result, blocks in_parts) {
  move_bytes(static_cast<char*>(result) + in_parts.begin(c.rank()),
             static_cast<const char*>(data) + out_parts.begin(c.rank()), out_parts.bytes(c.rank()));
  return exchange_blocks(c, data, out_parts, result, in_parts);
}

}  // namespace tutti::coll
