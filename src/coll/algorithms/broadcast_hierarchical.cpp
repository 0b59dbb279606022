// SPDX-License-Identifier: Apache-2.0
// Several hosts: the root sends to one rank of every host, which broadcasts there. Every host gets the data
// once over the network.
#include "coll/algorithms.hpp"

#include <algorithm>

namespace tutti::coll {

task<> broadcast_hierarchical(collective c, void* data, std::size_t bytes, int root) {
  const comm::topology& places = c.comm().places();
  const auto root_host = static_cast<std::size_t>(places.host_of[static_cast<std::size_t>(root)]);
  // On its own host the root is that rank.
  const bool with_root = static_cast<std::size_t>(places.host) == root_host;
  const int speaker = with_root ? root : places.leaders[static_cast<std::size_t>(places.host)];
  if (c.rank() == speaker) {
    auto lease = c.scratch().take(places.leaders.size() * sizeof(int));
    int* const speakers = reinterpret_cast<int*>(lease.data());
    std::copy(places.leaders.begin(), places.leaders.end(), speakers);
    speakers[root_host] = root;
    const collective between = c.among(std::span<const int>(speakers, places.leaders.size()), places.host);
    co_await broadcast_binomial(between, data, bytes, static_cast<int>(root_host));
  }
  const auto at = std::find(places.local.begin(), places.local.end(), speaker);
  const collective here = c.among(places.local, places.local_rank);
  co_await broadcast_binomial(here, data, bytes, static_cast<int>(at - places.local.begin()));
}

}  // namespace tutti::coll
