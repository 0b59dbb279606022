// SPDX-License-Identifier: Apache-2.0
// Several hosts: the ranks of a host reduce to one of them, and those to the root. One message per host on
// the network.
#include "coll/algorithms.hpp"

#include <algorithm>

namespace tutti::coll {

task<> reduce_hierarchical(collective c, reduce_call r, int root) {
  auto own = c.scratch().take(r.data == nullptr ? r.count * r.element_bytes : 0);
  if (r.data == nullptr) r.data = own.data();
  r.copy_input();
  const comm::topology& places = c.comm().places();
  const auto root_host = static_cast<std::size_t>(places.host_of[static_cast<std::size_t>(root)]);
  const bool with_root = static_cast<std::size_t>(places.host) == root_host;
  const int speaker = with_root ? root : places.leaders[static_cast<std::size_t>(places.host)];
  const auto at = std::find(places.local.begin(), places.local.end(), speaker);
  const collective here = c.among(places.local, places.local_rank);
  co_await reduce_binomial(here, r, static_cast<int>(at - places.local.begin()));
  if (c.rank() != speaker) co_return;
  auto lease = c.scratch().take(places.leaders.size() * sizeof(int));
  int* const speakers = reinterpret_cast<int*>(lease.data());
  std::copy(places.leaders.begin(), places.leaders.end(), speakers);
  speakers[root_host] = root;
  const collective between = c.among(std::span<const int>(speakers, places.leaders.size()), places.host);
  co_await reduce_binomial(between, r, static_cast<int>(root_host));
}

}  // namespace tutti::coll
