// SPDX-License-Identifier: Apache-2.0
// Chunked ring: P-1 steps of reduce-scatter, in which each chunk collects the contributions on its way round,
// then P-1 steps of all-gather. Every rank sends and receives 2 (P-1)/P n bytes, which is the minimum: for
// large n. Each chunk is reduced along one path, so the result has the same bits on all ranks. (Patarasuk,
// Yuan 2009.)
//
// Chunks travel in pieces that fit in a core's cache. A piece is reduced while it is in cache and the next
// ones are in flight; the loop gets its turn between pieces. The input is read in place and may be separate
// from the result.
#include "coll/algorithms.hpp"
#include "coll/in_flight.hpp"
#include "coll/reduce.hpp"

#include <algorithm>

namespace tutti::coll {
namespace {

constexpr std::size_t piece_bytes = std::size_t{256} * 1024;
// Pieces for which receives are posted, and that leave before the one whose turn it is has arrived: a piece
// takes three times the delay of the link, for its rts, cts and data.
constexpr std::size_t ahead = 8;

}  // namespace

task<> all_reduce_ring(collective c, reduce_call r) {
  const int size = c.size();
  const int right = (c.rank() + 1) % size;
  const int left = (c.rank() + size - 1) % size;
  char* const data = static_cast<char*>(r.data);
  const char* const input = static_cast<const char*>(r.input);
  const blocks chunks = blocks::split(r.count, size, r.element_bytes);
  const auto wrap = [=](int chunk) { return (chunk + 2 * size) % size; };

  const std::size_t piece = std::max<std::size_t>(1, piece_bytes / r.element_bytes) * r.element_bytes;
  const std::size_t pieces = (chunks.longest(size) + piece - 1) / piece;  // of the longest chunk
  const std::size_t all = pieces * static_cast<std::size_t>(size - 1);
  // For piece i of all: its offset in a chunk, and its length. The last piece of a shorter chunk may be
  // empty.
  const auto offset = [=](std::size_t i) { return i % pieces * piece; };
  const auto length = [=](int chunk, std::size_t i) {
    const std::size_t bytes = chunks.bytes(chunk);
    return offset(i) < bytes ? std::min(piece, bytes - offset(i)) : 0;
  };
  const auto leaving = [=](std::size_t i) { return wrap(c.rank() - static_cast<int>(i / pieces)); };
  const auto coming = [=](std::size_t i) { return wrap(c.rank() - static_cast<int>(i / pieces) - 1); };

  auto lease = c.scratch().take(std::min(ahead, all) * piece);
  in_flight<p2p::receiving, ahead> receives;
  const auto post = [&](std::size_t i) {
    const std::size_t bytes = length(coming(i), i);
    if (bytes > 0) receives.start([&] { return c.receive(left, lease.data() + i % ahead * piece, bytes); });
  };
  in_flight<p2p::sending, ahead> sends;
  for (std::size_t i = 0; i < std::min(ahead, all); ++i) post(i);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < all; ++i) {
    // Of the first chunk all pieces are there, of the others those that have come a chunk before.
    for (; sent < std::min(all, i + ahead) && (sent < pieces || sent - pieces < i); ++sent) {
      const int out = leaving(sent);
      const std::size_t bytes = length(out, sent);
      if (bytes == 0) continue;
      const char* const from = (sent < pieces ? input : data) + chunks.begin(out) + offset(sent);
      co_await sends.make_room();
      sends.start([&] { return c.send(right, from, bytes); });
    }
    const int in = coming(i);
    const std::size_t count = length(in, i) / r.element_bytes;
    if (count > 0) {
      co_await receives.oldest();
      receives.drop_oldest();
      const std::size_t at = chunks.begin(in) + offset(i);
      combine(r.op, r.type, lease.data() + i % ahead * piece, input + at, data + at, count);
      if (i + pieces >= all) finish(r.op, r.type, data + at, count, r.ranks);  // complete here
    }
    if (i + ahead < all) post(i + ahead);
  }
  co_await sends.drain();
  co_await pass_blocks_round(c, data, chunks, wrap(c.rank() + 1));
}

}  // namespace tutti::coll
