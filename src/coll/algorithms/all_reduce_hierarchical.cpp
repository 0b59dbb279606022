// SPDX-License-Identifier: Apache-2.0
// Several hosts, small n: the ranks of a host reduce to their leader, the leaders reduce among themselves,
// and each leader broadcasts on its host. Between hosts log2 H rounds of n bytes, with one message at a time
// per host on the network.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> all_reduce_hierarchical(collective c, reduce_call r) {
  r.copy_input();
  const comm::topology& places = c.comm().places();
  const collective here = c.among(places.local, places.local_rank);
  co_await reduce_binomial(here, r, 0);
  if (places.local_rank == 0) {
    const collective leaders = c.among(places.leaders, places.host);
    co_await all_reduce_recursive_doubling(leaders, r);
  }
  co_await broadcast_binomial(here, r.data, r.count * r.element_bytes, 0);
}

}  // namespace tutti::coll
