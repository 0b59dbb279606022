// SPDX-License-Identifier: Apache-2.0
#include "coll/algorithms.hpp"

namespace tutti::coll {

// Dissemination barrier: in round k every rank sends to the rank 2^k ahead and receives from the rank 2^k
// behind. ceil(log2 P) rounds, each one empty message each way. (Hensgen, Finkel, Manber 1988.)
task<> barrier_dissemination(collective c) {
  for (int distance = 1; distance < c.size(); distance *= 2) {
    auto telling = c.send(c.ahead(distance), nullptr, 0);
    co_await c.receive(c.ahead(-distance), nullptr, 0);
    co_await telling;
  }
}

}  // namespace tutti::coll
