// SPDX-License-Identifier: Apache-2.0
// Ring: every block goes round. P-1 steps; every rank sends and receives (P-1)/P of the result, which is the
// minimum. Blocks may be uneven. Receives for the next blocks are posted ahead, so that early data go to
// their place at once.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"

#include <algorithm>

namespace tutti::coll {
namespace {

constexpr int blocks_ahead = 3;  // for which receives are posted

}  // namespace

task<> pass_blocks_round(collective c, void* data, blocks parts, int own) {
  const int size = c.size();
  const int right = (c.rank() + 1) % size;
  const int left = (c.rank() + size - 1) % size;
  const int steps = size - 1;
  char* const all = static_cast<char*>(data);
  const auto leaving = [=](int step) { return (own - step + size) % size; };

  in_flight<p2p::receiving, blocks_ahead> receives;
  const auto post = [&](int step) {
    const int in = leaving(step + 1);
    receives.start([&] { return c.receive(left, all + parts.begin(in), parts.bytes(in)); });
  };
  for (int step = 0; step < std::min(blocks_ahead, steps); ++step) post(step);
  sends_in_flight sends;
  for (int step = 0; step < steps; ++step) {
    const int out = leaving(step);
    co_await sends.make_room();
    sends.start([&] { return c.send(right, all + parts.begin(out), parts.bytes(out)); });
    co_await receives.oldest();
    receives.drop_oldest();
    if (step + blocks_ahead < steps) post(step + blocks_ahead);
  }
  co_await sends.drain();
}

task<> all_gather_ring(collective c, const void* block, void* data, blocks parts) {
  move_bytes(static_cast<char*>(data) + parts.begin(c.rank()), block, parts.bytes(c.rank()));
  co_await pass_blocks_round(c, data, parts, c.rank());
}

}  // namespace tutti::coll
