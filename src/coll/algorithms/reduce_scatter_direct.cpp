// SPDX-License-Identifier: Apache-2.0
// Direct: every rank sends every other one its contribution to that rank's block, and reduces its own block
// from all contributions in rank order. One step of P-1 messages, (P-1)/P n bytes each way, and memory for P
// blocks: for small and medium n.
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> reduce_scatter_direct(collective c, reduce_call r, blocks parts) {
  const int size = c.size();
  const int rank = c.rank();
  const char* const in = static_cast<const char*>(r.input);
  const std::size_t own = parts.bytes(rank);
  auto contributions = c.scratch().take(static_cast<std::size_t>(size) * own);
  co_await exchange_blocks(c, in, parts, contributions.data(), blocks::even(own));
  auto lease = c.scratch().take(static_cast<std::size_t>(size) * sizeof(const void*));
  auto** const inputs = reinterpret_cast<const void**>(lease.data());
  for (int i = 0; i < size; ++i)
    inputs[i] = i == rank ? static_cast<const void*>(in + parts.begin(rank))
                          : contributions.data() + static_cast<std::size_t>(i) * own;
  reduce_all(r.op, r.type, std::span<const void* const>(inputs, static_cast<std::size_t>(size)), r.data,
             own / r.element_bytes);
}

}  // namespace tutti::coll
