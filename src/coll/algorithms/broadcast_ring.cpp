// SPDX-License-Identifier: Apache-2.0
// Pipelined ring: the data go from rank to rank in slices, and a rank forwards one slice while the next ones
// arrive. P-2 + n/slice steps; every rank receives n bytes once and sends them once, which is the minimum.
// For large n between hosts, where a tree's root sends the data log P times. Over loopback it gains nothing,
// so its row comes after those that are chosen by default: select it by name, or let `tutti-perf tune`
// measure it.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"

#include <algorithm>

namespace tutti::coll {
namespace {

constexpr std::size_t slice_bytes = std::size_t{64} * 1024;
constexpr std::size_t slices_ahead = 4;  // slices for which receives are posted

}  // namespace

task<> broadcast_ring(collective c, void* data, std::size_t bytes, int root) {
  const int size = c.size();
  const int right = (c.rank() + 1) % size;
  const int left = (c.rank() + size - 1) % size;
  const bool receives = c.rank() != root;
  const bool sends = right != root;
  char* const all = static_cast<char*>(data);
  const std::size_t slices = (bytes + slice_bytes - 1) / slice_bytes;
  const auto length = [=](std::size_t i) { return std::min(slice_bytes, bytes - i * slice_bytes); };

  in_flight<p2p::receiving, slices_ahead> coming;
  const auto post = [&](std::size_t i) {
    coming.start([&] { return c.receive(left, all + i * slice_bytes, length(i)); });
  };
  if (receives)
    for (std::size_t i = 0; i < std::min(slices_ahead, slices); ++i) post(i);
  sends_in_flight leaving;
  for (std::size_t i = 0; i < slices; ++i) {
    if (receives) {
      co_await coming.oldest();
      coming.drop_oldest();
      if (i + slices_ahead < slices) post(i + slices_ahead);
    }
    if (!sends) continue;
    co_await leaving.make_room();
    leaving.start([&] { return c.send(right, all + i * slice_bytes, length(i)); });
  }
  co_await leaving.drain();
}

}  // namespace tutti::coll
