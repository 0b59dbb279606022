// SPDX-License-Identifier: Apache-2.0
// Several hosts: the ranks of a host report to their leader, the leaders run a barrier, and each leader
// releases its host. ceil(log2 H) rounds on the network.
#include "coll/algorithms.hpp"

namespace tutti::coll {

task<> barrier_hierarchical(collective c) {
  const comm::topology& places = c.comm().places();
  const collective here = c.among(places.local, places.local_rank);
  co_await gather_linear(here, nullptr, nullptr, blocks::even(0), 0, 0);
  if (places.local_rank == 0) {
    const collective leaders = c.among(places.leaders, places.host);
    co_await barrier_dissemination(leaders);
  }
  co_await broadcast_binomial(here, nullptr, 0, 0);
}

}  // namespace tutti::coll
