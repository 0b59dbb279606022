// SPDX-License-Identifier: Apache-2.0
// Several hosts with the same number L of ranks, large n. Each rank of a host reduces one slice, the ranks
// with the same slice reduce it between the hosts, and each host gathers the slices. Between hosts 2 (H-1)/H
// n/L bytes per rank: all ranks of a host use the network at once. (DPML: Bayatpour et al., SC 2017.)
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> all_reduce_hierarchical_split(collective c, reduce_call r) {
  const comm::topology& places = c.comm().places();
  const collective here = c.among(places.local, places.local_rank);
  const collective across = c.among(places.column, places.host);
  const blocks slices = blocks::split(r.count, here.size(), r.element_bytes);
  char* const mine = static_cast<char*>(r.data) + slices.begin(places.local_rank);
  reduce_call slice = r;
  slice.data = mine;
  co_await reduce_scatter_ring(here, slice, slices);
  slice.input = mine;
  slice.count = slices.bytes(places.local_rank) / r.element_bytes;
  co_await all_reduce_ring(across, slice);
  co_await pass_blocks_round(here, r.data, slices, here.rank());
}

}  // namespace tutti::coll
