// SPDX-License-Identifier: Apache-2.0
// Recursive doubling, and halving: the distance between ranks that exchange data doubles, or halves, in every
// round.
#include "coll/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace tutti::coll {
namespace {

// The largest power of two of the ranks take part. Of the first 2 * extra ranks, the odd ones are folded into
// the even ones before them: they send these their data first, and receive the result from them: two more
// steps. The numbers of those that take part keep the order of the ranks.
struct folding {
  explicit folding(const collective& c) noexcept
      : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(c.size())))),
        extra(c.size() - power),
        paired(c.rank() < 2 * extra),
        folded(paired && c.rank() % 2 == 1),
        number(paired ? c.rank() / 2 : c.rank() - extra) {}
  int rank_of(int n) const noexcept { return n < extra ? n * 2 : n + extra; }
  int power;
  int extra;
  bool paired;  // this rank is one of the first
  bool folded;  // and takes no part
  int number;   // otherwise its number
};

// The block of the lower ranks is the left operand, so both sides of an exchange compute the same bits.
void combine_in_order(const reduce_call& r, void* mine, const void* theirs, std::size_t count,
                      bool mine_first) {
  combine(r.op, r.type, mine_first ? mine : theirs, mine_first ? theirs : mine, mine, count);
}

// Reduces `r` in place on the ranks that take part.
using exchanging = task<>(collective c, reduce_call r, folding f);

task<> fold(exchanging* exchange, collective c, reduce_call r, folding f) {
  const std::size_t bytes = r.count * r.element_bytes;
  if (f.folded) {
    co_await c.send(c.rank() - 1, r.data, bytes);
    co_await c.receive(c.rank() - 1, r.data, bytes);
    co_return;
  }
  if (f.paired) {
    auto lease = c.scratch().take(bytes);
    co_await c.receive(c.rank() + 1, lease.data(), bytes);
    combine(r.op, r.type, r.data, lease.data(), r.data, r.count);
  }
  co_await exchange(c, r, f);
  if (f.paired) {
    co_await c.send(c.rank() + 1, r.data, bytes);
  }
}

task<> all_reduce_by(exchanging* exchange, const collective& c, reduce_call r) {
  r.copy_input();
  const folding f(c);
  return f.extra == 0 ? exchange(c, r, f) : fold(exchange, c, r, f);
}

task<> double_distance(collective c, reduce_call r, folding f) {
  const std::size_t bytes = r.count * r.element_bytes;
  auto lease = c.scratch().take(bytes);
  std::byte* const theirs = lease.data();
  for (int mask = 1; mask < f.power; mask *= 2) {
    const int other = f.rank_of(f.number ^ mask);
    auto sending = c.send(other, r.data, bytes);
    co_await c.receive(other, theirs, bytes);
    co_await sending;
    combine_in_order(r, r.data, theirs, r.count, (f.number & mask) == 0);
  }
  finish(r.op, r.type, r.data, r.count, r.ranks);
}

task<> halve_and_double_distance(collective c, reduce_call r, folding f) {
  auto lease = c.scratch().take(r.count * r.element_bytes);
  std::byte* const theirs = lease.data();
  const blocks parts = blocks::split(r.count, f.power, r.element_bytes);
  // This rank still works on blocks first to last - 1.
  int first = 0;
  int last = f.power;
  for (int mask = f.power / 2; mask > 0; mask /= 2) {
    const int other = f.rank_of(f.number ^ mask);
    const int half = (last - first) / 2;
    const bool upper = (f.number & mask) != 0;
    const int keep = upper ? first + half : first;
    const int give = upper ? first : first + half;
    auto sending = c.send(other, r.data + parts.begin(give), parts.bytes(give, give + half));
    co_await c.receive(other, theirs, parts.bytes(keep, keep + half));
    co_await sending;
    combine_in_order(r, r.data + parts.begin(keep), theirs, parts.bytes(keep, keep + half) / r.element_bytes,
                     !upper);
    first = keep;
    last = keep + half;
  }
  finish(r.op, r.type, r.data + parts.begin(first), parts.bytes(first, last) / r.element_bytes, r.ranks);
  for (int mask = 1; mask < f.power; mask *= 2) {
    const int other = f.rank_of(f.number ^ mask);
    const int width = last - first;
    const int theirs_first = (f.number & mask) != 0 ? first - width : first + width;
    auto sending = c.send(other, r.data + parts.begin(first), parts.bytes(first, last));
    co_await c.receive(other, r.data + parts.begin(theirs_first),
                       parts.bytes(theirs_first, theirs_first + width));
    co_await sending;
    first = std::min(first, theirs_first);
    last = first + 2 * width;
  }
}

}  // namespace

// Recursive doubling: in round k, ranks that differ in bit k exchange everything they have, and both reduce
// it. ceil(log2 P) rounds of n bytes each way: few steps, for small n.
task<> all_reduce_recursive_doubling(collective c, reduce_call r) {
  return all_reduce_by(double_distance, c, r);
}

// Rabenseifner's algorithm: recursive halving leaves every rank one reduced block, recursive doubling gathers
// the blocks. 2 log2 P rounds, 2 (P-1)/P n bytes each way: the ring's traffic in a tree's number of rounds,
// for medium n. Every block is reduced in one place. (Rabenseifner 2004.)
task<> all_reduce_rabenseifner(collective c, reduce_call r) {
  return all_reduce_by(halve_and_double_distance, c, r);
}

// Recursive doubling: after round k a rank has the reduction of itself and the 2^k - 1 ranks before it, and
// sends it 2^k ranks on. ceil(log2 P) rounds of n bytes. (Hillis, Steele 1986.) Inclusive: `data` becomes the
// reduction of ranks 0 to this one. Exclusive: the reduction of ranks 0 to the one before is written to
// `before`; that of rank 0 keeps its contents.
task<> scan_recursive_doubling(collective c, reduce_call r, std::byte* before) {
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t bytes = r.count * r.element_bytes;
  auto lease = c.scratch().take(2 * bytes);
  std::byte* const theirs = lease.data();
  // Data that are being sent must not change.
  std::byte* const leaving = lease.data() + bytes;
  bool first = true;
  for (int distance = 1; distance < size; distance *= 2) {
    std::optional<p2p::receiving> receiving;
    if (rank >= distance)
      receiving.emplace(made_in_place{[&] { return c.receive(rank - distance, theirs, bytes); }});
    std::optional<p2p::sending> sending;
    if (rank + distance < size) {
      if (bytes > 0) std::memcpy(leaving, r.data, bytes);
      sending.emplace(made_in_place{[&] { return c.send(rank + distance, leaving, bytes); }});
    }
    if (receiving) co_await *receiving;
    if (sending) co_await *sending;
    if (!receiving) continue;
    combine(r.op, r.type, theirs, r.data, r.data, r.count);
    if (before == nullptr) continue;
    if (first && bytes > 0) std::memcpy(before, theirs, bytes);
    if (!first) combine(r.op, r.type, theirs, before, before, r.count);
    first = false;
  }
}

}  // namespace tutti::coll
