// SPDX-License-Identifier: Apache-2.0
// Several hosts: within each host first, then between hosts, or the other way round.
#include "coll/algorithms.hpp"

#include <algorithm>

namespace tutti::coll {
namespace {

collective on_this_host(const collective& c) noexcept {
  return c.among(c.comm().group().places().local, c.comm().group().places().local_rank);
}

// The rank of each host that exchanges data with other hosts: its leader, on the root's host the root.
struct speakers {
  speakers(const collective& c, int root)
      : places(c.comm().group().places()),
        memory(c.scratch().take(places.leaders.size() * sizeof(int))),
        ranks(reinterpret_cast<int*>(memory.data()), places.leaders.size()),
        root_host(places.host_of[static_cast<std::size_t>(root)]),
        among_all(c.among(ranks, places.host)) {
    std::ranges::copy(places.leaders, ranks.begin());
    ranks[static_cast<std::size_t>(root_host)] = root;
  }
  int here() const noexcept { return ranks[static_cast<std::size_t>(places.host)]; }
  // The place of that rank on this host.
  int place_here() const noexcept {
    return static_cast<int>(std::ranges::find(places.local, here()) - places.local.begin());
  }
  const comm::topology& places;
  comm::scratch_pool::lease memory;
  std::span<int> ranks;  // by host
  int root_host;
  collective among_all;
};

}  // namespace

// The ranks of a host report to their leader, the leaders run a barrier, and each leader
// releases its host. ceil(log2 H) rounds on the network.
task<> barrier_hierarchical(collective c) {
  const comm::topology& places = c.comm().group().places();
  const collective here = on_this_host(c);
  co_await gather_linear(here, nullptr, nullptr, blocks::even(0), 0);
  if (places.local_rank == 0) {
    const collective leaders = c.among(places.leaders, places.host);
    co_await barrier_dissemination(leaders);
  }
  co_await broadcast_binomial(here, nullptr, 0, 0);
}

// The root sends to one rank of every host, which broadcasts there. Every host gets the data
// once over the network.
task<> broadcast_hierarchical(collective c, std::byte* data, std::size_t bytes, int root) {
  const speakers between(c, root);
  if (c.rank() == between.here()) {
    co_await broadcast_binomial(between.among_all, data, bytes, between.root_host);
  }
  co_await broadcast_binomial(on_this_host(c), data, bytes, between.place_here());
}

// The ranks of a host reduce to one of them, and those to the root. One message per host on the network.
task<> reduce_hierarchical(collective c, reduce_call r, int root) {
  auto own = c.scratch().take(r.data == nullptr ? r.count * r.element_bytes : 0);
  if (r.data == nullptr) r.data = own.data();
  r.copy_input();
  const speakers between(c, root);
  co_await reduce_binomial(on_this_host(c), r, between.place_here());
  if (c.rank() != between.here()) co_return;
  co_await reduce_binomial(between.among_all, r, between.root_host);
}

// For small n: the ranks of a host reduce to their leader, the leaders reduce among themselves,
// and each leader broadcasts on its host. Between hosts log2 H rounds of n bytes, with one message at a time
// per host on the network.
task<> all_reduce_hierarchical(collective c, reduce_call r) {
  r.copy_input();
  const comm::topology& places = c.comm().group().places();
  const collective here = on_this_host(c);
  co_await reduce_binomial(here, r, 0);
  if (places.local_rank == 0) {
    const collective leaders = c.among(places.leaders, places.host);
    co_await all_reduce_recursive_doubling(leaders, r);
  }
  co_await broadcast_binomial(here, r.data, r.count * r.element_bytes, 0);
}

// For hosts with the same number L of ranks, and large n. Each rank of a host reduces one slice, the ranks
// with the same slice reduce it between the hosts, and each host gathers the slices. Between hosts 2 (H-1)/H
// n/L bytes per rank: all ranks of a host use the network at once. (DPML: Bayatpour et al., SC 2017.)
task<> all_reduce_hierarchical_split(collective c, reduce_call r) {
  const comm::topology& places = c.comm().group().places();
  const collective here = on_this_host(c);
  const collective across = c.among(places.column, places.host);
  const blocks slices = blocks::split(r.count, here.size(), r.element_bytes);
  std::byte* const mine = r.data + slices.begin(places.local_rank);
  reduce_call slice = r;
  slice.data = mine;
  co_await reduce_scatter_ring(here, slice, slices);
  slice.input = mine;
  slice.count = slices.bytes(places.local_rank) / r.element_bytes;
  co_await all_reduce_ring(across, slice);
  co_await pass_blocks_round(here, r.data, slices, here.rank());
}

}  // namespace tutti::coll
