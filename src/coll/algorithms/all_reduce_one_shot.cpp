// SPDX-License-Identifier: Apache-2.0
// One shot: every rank sends its whole contribution to every other one, and reduces all in rank order. One
// step of P-1 messages of n bytes each way: for small n between few hosts, where a step's latency is most of
// the time.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> all_reduce_one_shot(collective c, reduce_call r) {
  const auto size = static_cast<std::size_t>(c.size());
  const std::size_t bytes = r.count * r.element_bytes;
  auto contributions = c.scratch().take(size * bytes);
  auto lease = c.scratch().take(size * sizeof(const void*));
  auto** const inputs = reinterpret_cast<const void**>(lease.data());
  {
    constexpr std::size_t few_hosts = 7;  // others
    in_flight<p2p::sending, few_hosts> sends;
    in_flight<p2p::receiving, few_hosts> receives;
    for (int distance = 1; distance < c.size(); ++distance) {
      const int from = (c.rank() - distance + c.size()) % c.size();
      std::byte* const theirs = contributions.data() + static_cast<std::size_t>(from) * bytes;
      inputs[from] = theirs;
      co_await receives.make_room();
      receives.start([&] { return c.receive(from, theirs, bytes); });
      co_await sends.make_room();
      sends.start([&] { return c.send((c.rank() + distance) % c.size(), r.input, bytes); });
    }
    co_await receives.drain();
    co_await sends.drain();
  }
  inputs[c.rank()] = r.input;
  reduce_all(r.op, r.type, std::span<const void* const>(inputs, size), r.data, r.count);
}

}  // namespace tutti::coll
