// SPDX-License-Identifier: Apache-2.0
// Direct: every rank sends every other one its contribution to that rank's block, and reduces its own block
// from all contributions in rank order. One step of P-1 messages, (P-1)/P n bytes each way, and memory for P
// blocks: for small and medium n.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> reduce_scatter_direct(collective c, reduce_call r, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const char* const in = static_cast<const char*>(r.input);
  const std::size_t own = parts.bytes(rank);
  const std::size_t pointers = static_cast<std::size_t>(size) * sizeof(const void*);
  auto contributions = c.scratch().take(static_cast<std::size_t>(size) * own);
  auto lease = c.scratch().take(pointers);
  auto** const inputs = reinterpret_cast<const void**>(lease.data());
  {
    sends_in_flight sends;
    receives_in_flight receives;
    for (int distance = 1; distance < size; ++distance) {
      const int to = (rank + distance) % size;
      const int from = (rank - distance + size) % size;
      co_await receives.make_room();
      receives.start(
          [&] { return c.receive(from, contributions.data() + static_cast<std::size_t>(from) * own, own); });
      co_await sends.make_room();
      sends.start([&] { return c.send(to, in + parts.begin(to), parts.bytes(to)); });
    }
    co_await receives.drain();
    co_await sends.drain();
  }
  for (int i = 0; i < size; ++i)
    inputs[i] = i == rank ? static_cast<const void*>(in + parts.begin(rank))
                          : contributions.data() + static_cast<std::size_t>(i) * own;
  reduce_all(r.op, r.type, std::span<const void* const>(inputs, static_cast<std::size_t>(size)), r.data,
             own / r.element_bytes);
}

}  // namespace tutti::coll
