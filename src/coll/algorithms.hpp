// SPDX-License-Identifier: Apache-2.0
// The algorithms, one per source file, each with its idea and cost on top.
//
// Prepared data go in and finished data come out of all_reduce_*; the other reductions are finished by their
// caller, but for those on a collective segment (*_shared_memory), which also take halves as they are and
// round them once. Buffers of blocks have the own block in its place already, where that is said.
#pragma once

#include "coll/blocks.hpp"
#include "coll/collective.hpp"

#include <cstddef>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>

namespace tutti::coll {

// What is to be reduced. all_reduce_*, reduce_binomial and scan_* work in place, all_reduce_ring also from an
// input apart, and all_reduce_shared_memory too.
struct reduce_call {
  reduce_call(void* d, std::size_t n, std::size_t bytes, element_type t, const detail::reduction& o,
              int all) noexcept
      : data(d), count(n), element_bytes(bytes), type(t), op(o), ranks(all) {}
  void* data;
  const void* input = nullptr;  // of all_reduce_ring and _shared_memory: this rank's contribution, where it
                                // is not in `data` already
  std::size_t count;            // elements
  std::size_t element_bytes;
  element_type type;
  detail::reduction op;
  int ranks;  // whose contributions there are: what avg divides by
};

task<> barrier_dissemination(collective c);
task<> barrier_shared_memory(collective c);
task<> barrier_hierarchical(collective c);

task<> broadcast_binomial(collective c, void* data, std::size_t bytes, int root);
task<> broadcast_scatter_all_gather(collective c, void* data, std::size_t bytes, int root);
task<> broadcast_shared_memory(collective c, void* data, std::size_t bytes, int root);
task<> broadcast_hierarchical(collective c, void* data, std::size_t bytes, int root);

task<> reduce_binomial(collective c, reduce_call r, int root);
task<> reduce_scatter_gather(collective c, reduce_call r, void* result, int root);
task<> reduce_shared_memory(collective c, reduce_call r, void* result, int root);
task<> reduce_hierarchical(collective c, reduce_call r, int root);

task<> all_reduce_recursive_doubling(collective c, reduce_call r);
task<> all_reduce_rabenseifner(collective c, reduce_call r);
task<> all_reduce_ring(collective c, reduce_call r);
task<> all_reduce_shared_memory(collective c, reduce_call r);
task<> all_reduce_hierarchical(collective c, reduce_call r);
task<> all_reduce_hierarchical_split(collective c, reduce_call r);

// `result`: this rank's block, which may lie where it lay in the input.
task<> reduce_scatter_direct(collective c, reduce_call r, blocks parts, void* result);
task<> reduce_scatter_ring(collective c, reduce_call r, blocks parts, void* result);
task<> reduce_scatter_shared_memory(collective c, reduce_call r, blocks parts, void* result);

task<> gather_linear(collective c, const void* block, void* data, blocks parts, std::size_t own_bytes,
                     int root);
task<> gather_binomial(collective c, const void* block, void* data, std::size_t block_bytes, int root);
task<> scatter_linear(collective c, const void* data, void* block, blocks parts, std::size_t own_bytes,
                      int root);
task<> scatter_binomial(collective c, const void* data, void* block, std::size_t block_bytes, int root);

// The block that this rank has in its place: its own number, or any that is one more than the left
// neighbour's.
task<> all_gather_ring(collective c, void* data, blocks parts, int own);
task<> all_gather_bruck(collective c, void* data, std::size_t block_bytes);
// This rank's block is at `block`, and in its place already or anywhere else.
task<> all_gather_shared_memory(collective c, const void* block, void* data, blocks parts);

task<> all_to_all_pairwise(collective c, const void* data, blocks out_parts, void* result, blocks in_parts);
task<> all_to_all_shared_memory(collective c, const void* data, void* result, std::size_t block_bytes);
task<> all_to_all_bruck(collective c, const void* data, void* result, std::size_t block_bytes);

// `before` null: inclusive.
task<> scan_recursive_doubling(collective c, reduce_call r, void* before);

}  // namespace tutti::coll
