// SPDX-License-Identifier: Apache-2.0
// The algorithms, one per source file, each with its idea and cost on top.
#pragma once

#include "coll/collective.hpp"

#include <cstddef>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// What is to be reduced, in place.
struct reduce_call {
  reduce_call(void* d, std::size_t n, std::uint32_t bytes, element_type t, const detail::reduction& o) noexcept
      : data(d), count(n), element_bytes(bytes), type(t), op(o) {}
  void* data;
  std::size_t count;   // elements
  std::uint32_t element_bytes;
  element_type type;
  detail::reduction op;
};

task<> barrier_dissemination(collective c);
task<> broadcast_binomial(collective c, void* data, std::size_t bytes, int root);
task<> all_reduce_recursive_doubling(collective c, reduce_call r);
task<> all_reduce_ring(collective c, reduce_call r);

}  // namespace tutti::coll
