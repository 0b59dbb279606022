// SPDX-License-Identifier: Apache-2.0
// Rings: every rank receives from its left neighbour and sends to its right one.
#include "base/limits.hpp"
#include "coll/algorithms.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace tutti::coll {
namespace {

using limits::collectives::piece_bytes;
constexpr std::size_t ahead = limits::collectives::pieces_ahead;
constexpr std::size_t posted_ahead = 4;  // pieces that a rank passes on, for which receives are posted
constexpr std::size_t slice_bytes = std::size_t{64} * 1024;

// Receives pieces first to in - 1 from the left neighbour, posted ahead so that early data go to their place at
// once, and sends pieces 0 to out - 1 to the right one, each when it is here. piece(i) is the place of piece i.
template <class Piece>
task<> pass_on(collective c, std::size_t first, std::size_t in, std::size_t out, Piece piece) {
  in_flight<p2p::receiving, posted_ahead> coming;
  const auto post = [&](std::size_t i) {
    const std::span<std::byte> to = piece(i);
    coming.start([&] { return c.receive(c.ahead(-1), to.data(), to.size()); });
  };
  for (std::size_t i = first; i < std::min(first + posted_ahead, in); ++i) post(i);
  in_flight<p2p::sending, 4> leaving;
  for (std::size_t i = 0; i < std::max(in, out); ++i) {
    if (i >= first && i < in) {
      co_await coming.oldest();
      coming.drop_oldest();
      if (i + posted_ahead < in) post(i + posted_ahead);
    }
    if (i >= out) continue;
    co_await leaving.make_room();
    const std::span<std::byte> from = piece(i);
    leaving.start([&] { return c.send(c.ahead(1), from.data(), from.size()); });
  }
  co_await leaving.drain();
}

}  // namespace

// Every block goes round. P-1 steps; every rank sends and receives (P-1)/P of the result, which is the
// minimum. Blocks may be uneven.
task<> pass_blocks_round(collective c, std::byte* data, blocks parts, int own, int root) {
  const auto size = static_cast<std::size_t>(c.size());
  const auto block = [=, n = c.size()](std::size_t i) {
    return parts.of(data, (own - static_cast<int>(i) + n) % n);
  };
  return pass_on(c, 1, c.rank() != root ? size : 0, c.ahead(1) != root ? size - 1 : 0, block);
}

task<> all_gather_ring(collective c, const std::byte* block, std::byte* data, blocks parts) {
  move_bytes(data + parts.begin(c.rank()), block, parts.bytes(c.rank()));
  co_await pass_blocks_round(c, data, parts, c.rank());
}

// The partial result of each block goes round once, and every rank on the way adds its contribution; it
// ends at its owner. P-1 steps; every rank sends and receives (P-1)/P n bytes, which is the minimum: for
// large n.
task<> reduce_scatter_ring(collective c, reduce_call r, blocks parts) {
  const int size = c.size();
  if (size == 1) {
    move_bytes(r.data, r.input, parts.bytes(0));
    co_return;
  }
  const std::size_t longest = parts.longest(size);
  auto lease = c.scratch().take(2 * longest);
  std::byte* arriving = lease.data();
  std::byte* leaving = lease.data() + longest;
  // The block that starts here is that of the left neighbour, which has the longest way.
  const std::byte* next = r.input + parts.begin(c.ahead(-1));
  for (int step = 0; step + 1 < size; ++step) {
    const int out_block = c.ahead(-step - 1);
    const int in_block = c.ahead(-step - 2);
    auto sending = c.send(c.ahead(1), next, parts.bytes(out_block));
    co_await c.receive(c.ahead(-1), arriving, parts.bytes(in_block));
    const bool last = step + 2 == size;
    combine(r.op, r.type, arriving, r.input + parts.begin(in_block), arriving,
            parts.bytes(in_block) / r.element_bytes);
    co_await sending;
    next = arriving;
    std::swap(arriving, leaving);
    // Only now: until here the result may have been part of the input that is still needed.
    if (last && parts.bytes(in_block) > 0) std::memcpy(r.data, next, parts.bytes(in_block));
  }
}

// Reduces by ring reduce-scatter, then gather: every rank reduces one slice, and the root collects them. P
// steps, about 2 n bytes at the root and n elsewhere, against the n log P of a tree: for large n. The input
// stays unchanged, except on the root, where it may be the result.
task<> reduce_ring(collective c, reduce_call r, int root) {
  const blocks slices = blocks::split(r.count, c.size(), r.element_bytes);
  const std::size_t own = slices.bytes(c.rank());
  const bool is_root = c.rank() == root;
  auto lease = c.scratch().take(is_root ? 0 : own);
  reduce_call slice = r;
  slice.data = is_root ? r.data + slices.begin(root) : lease.data();
  co_await reduce_scatter_ring(c, slice, slices);
  co_await gather_linear(c, slice.data, r.data, slices, root);
}

// Chunked ring: P-1 steps of reduce-scatter, in which each chunk collects the contributions on its way round,
// then P-1 steps of all-gather. Every rank sends and receives 2 (P-1)/P n bytes, which is the minimum: for
// large n. Each chunk is reduced along one path, so the result has the same bits on all ranks. (Patarasuk,
// Yuan 2009.)
//
// Chunks travel in pieces that fit in a core's cache. A piece is reduced while it is in cache and the next
// ones are in flight; the loop gets its turn between pieces. The input is read in place and may be separate
// from the result.
task<> all_reduce_ring(collective c, reduce_call r) {
  const int size = c.size();
  const blocks chunks = blocks::split(r.count, size, r.element_bytes);

  const std::size_t piece = std::max<std::size_t>(1, piece_bytes / r.element_bytes) * r.element_bytes;
  const std::size_t pieces = (chunks.longest(size) + piece - 1) / piece;  // of the longest chunk
  const std::size_t all = pieces * static_cast<std::size_t>(size - 1);
  // Piece i of all: its offset in a chunk, and its length. The last one of a shorter chunk may be empty.
  const auto offset = [=](std::size_t i) { return i % pieces * piece; };
  const auto length = [=](int chunk, std::size_t i) {
    const std::size_t bytes = chunks.bytes(chunk);
    return offset(i) < bytes ? std::min(piece, bytes - offset(i)) : 0;
  };
  const auto leaving = [=](std::size_t i) { return c.ahead(-static_cast<int>(i / pieces)); };
  const auto coming = [=](std::size_t i) { return c.ahead(-static_cast<int>(i / pieces) - 1); };

  auto lease = c.scratch().take(std::min(ahead, all) * piece);
  in_flight<p2p::receiving, ahead> receives;
  const auto post = [&](std::size_t i) {
    const std::size_t bytes = length(coming(i), i);
    if (bytes > 0)
      receives.start([&] { return c.receive(c.ahead(-1), lease.data() + i % ahead * piece, bytes); });
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
      const std::byte* const from = (sent < pieces ? r.input : r.data) + chunks.begin(out) + offset(sent);
      co_await sends.make_room();
      sends.start([&] { return c.send(c.ahead(1), from, bytes); });
    }
    const int in = coming(i);
    const std::size_t count = length(in, i) / r.element_bytes;
    if (count > 0) {
      co_await receives.oldest();
      receives.drop_oldest();
      const std::size_t at = chunks.begin(in) + offset(i);
      combine(r.op, r.type, lease.data() + i % ahead * piece, r.input + at, r.data + at, count);
      if (i + pieces >= all) finish(r.op, r.type, r.data + at, count, r.ranks);  // complete here
    }
    if (i + ahead < all) post(i + ahead);
  }
  co_await sends.drain();
  co_await pass_blocks_round(c, r.data, chunks, c.ahead(1));
}

// Pipelined ring: the data go from rank to rank in slices, and a rank forwards one slice while the next ones
// arrive. P-2 + n/slice steps; every rank receives n bytes once and sends them once, which is the minimum.
// For large n between hosts, where a tree's root sends the data log P times. Over loopback it gains nothing,
// so its row comes after those that are chosen by default: select it by name, or let `tutti-perf tune`
// measure it.
task<> broadcast_ring(collective c, std::byte* data, std::size_t bytes, int root) {
  const std::size_t slices = (bytes + slice_bytes - 1) / slice_bytes;
  const auto slice = [=](std::size_t i) {
    return std::span(data + i * slice_bytes, std::min(slice_bytes, bytes - i * slice_bytes));
  };
  return pass_on(c, 0, c.rank() != root ? slices : 0, c.ahead(1) != root ? slices : 0, slice);
}

// Scatter, then ring all-gather: the root sends every rank one block of the data, and the blocks go round.
// Every rank moves about 2 n bytes instead of the n log P of a tree's root, in 2 (P-1) steps: for large n.
// (van de Geijn 1994.)
task<> broadcast_scatter_all_gather(collective c, std::byte* data, std::size_t bytes, int root) {
  const blocks parts = blocks::split(bytes, c.size(), 1);
  const int rank = c.rank();
  co_await scatter_linear(c, data, data + parts.begin(rank), parts, root);
  co_await pass_blocks_round(c, data, parts, rank, root);
}

}  // namespace tutti::coll
