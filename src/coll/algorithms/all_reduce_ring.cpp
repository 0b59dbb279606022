// SPDX-License-Identifier: Apache-2.0
// Chunked ring: P-1 steps of reduce-scatter, in which chunk after chunk collects the contributions on its way round,
// then P-1 steps of all-gather. Every rank sends and receives 2 (P-1)/P n bytes, the least there is: for large n.
// Each chunk is reduced along one path, so the result is the same bits on all ranks. (Patarasuk, Yuan 2009.)
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> all_reduce_ring(collective c, reduce_call r) {
  const int size = c.size();
  const int right = (c.rank() + 1) % size;
  const int left = (c.rank() + size - 1) % size;
  char* const data = static_cast<char*>(r.data);
  // The first `longer` chunks have one element more.
  const std::size_t base = r.count / static_cast<std::size_t>(size);
  const std::size_t longer = r.count % static_cast<std::size_t>(size);
  const auto start = [=](int chunk) {
    const auto i = static_cast<std::size_t>(chunk);
    return i * base + (i < longer ? i : longer);
  };
  const auto length = [=](int chunk) { return base + (static_cast<std::size_t>(chunk) < longer ? 1 : 0); };
  const auto wrap = [=](int chunk) { return (chunk + 2 * size) % size; };
  auto lease = c.scratch().take((base + 1) * r.element_bytes);

  for (int step = 0; step + 1 < size; ++step) {
    const int out = wrap(c.rank() - step);
    const int in = wrap(c.rank() - step - 1);
    auto receiving = c.receive(left, lease.data(), length(in) * r.element_bytes);
    auto sending = c.send(right, data + start(out) * r.element_bytes, length(out) * r.element_bytes);
    co_await receiving;
    char* const place = data + start(in) * r.element_bytes;
    combine(r.op, r.type, lease.data(), place, place, length(in));
    co_await sending;
  }
  const int whole = wrap(c.rank() + 1);   // the chunk that is complete here
  finish(r.op, r.type, data + start(whole) * r.element_bytes, length(whole), r.ranks);
  for (int step = 0; step + 1 < size; ++step) {
    const int out = wrap(c.rank() + 1 - step);
    const int in = wrap(c.rank() - step);
    auto receiving = c.receive(left, data + start(in) * r.element_bytes, length(in) * r.element_bytes);
    auto sending = c.send(right, data + start(out) * r.element_bytes, length(out) * r.element_bytes);
    co_await receiving;
    co_await sending;
  }
}

}  // namespace tutti::coll
