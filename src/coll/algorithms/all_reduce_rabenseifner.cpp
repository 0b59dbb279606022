// SPDX-License-Identifier: Apache-2.0
// Rabenseifner's algorithm: recursive halving leaves every rank one reduced block, recursive doubling gathers
// the blocks. 2 log2 P rounds, 2 (P-1)/P n bytes each way: the ring's traffic in a tree's number of rounds,
// for medium n. Ranks beyond the largest power of two first send their data to a neighbour, and receive the
// result from it. (Rabenseifner 2004.) The block of the lower ranks is always the left operand; every block
// is reduced in one place.
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> all_reduce_rabenseifner(collective c, reduce_call r) {
  r.copy_input();
  const int size = c.size();
  const int rank = c.rank();
  const std::size_t bytes = r.count * r.element_bytes;
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int extra = size - power;  // ranks 2i+1 for i < extra are folded into ranks 2i
  char* const data = static_cast<char*>(r.data);
  auto lease = c.scratch().take(bytes);
  std::byte* const theirs = lease.data();

  if (rank < 2 * extra && rank % 2 == 1) {
    co_await c.send(rank - 1, data, bytes);
    co_await c.receive(rank - 1, data, bytes);
    co_return;
  }
  if (rank < 2 * extra) {
    co_await c.receive(rank + 1, theirs, bytes);
    combine(r.op, r.type, data, theirs, data, r.count);
  }
  const int number = rank < 2 * extra ? rank / 2 : rank - extra;
  const auto rank_of = [extra](int n) { return n < extra ? n * 2 : n + extra; };
  const blocks parts = blocks::split(r.count, power, r.element_bytes);

  // This rank still works on blocks first to last - 1.
  int first = 0;
  int last = power;
  for (int mask = power / 2; mask > 0; mask /= 2) {
    const int other = number ^ mask;
    const int middle = (first + last) / 2;
    const bool upper = (number & mask) != 0;
    const int keep = upper ? middle : first;
    const int give = upper ? first : middle;
    const int half = (last - first) / 2;
    auto sending = c.send(rank_of(other), data + parts.begin(give), parts.bytes(give, give + half));
    co_await c.receive(rank_of(other), theirs, parts.bytes(keep, keep + half));
    co_await sending;
    char* const mine = data + parts.begin(keep);
    const std::size_t count = parts.bytes(keep, keep + half) / r.element_bytes;
    if (upper) {
      combine(r.op, r.type, theirs, mine, mine, count);
    } else {
      combine(r.op, r.type, mine, theirs, mine, count);
    }
    first = keep;
    last = keep + half;
  }
  finish(r.op, r.type, data + parts.begin(first), parts.bytes(first, last) / r.element_bytes, r.ranks);
  for (int mask = 1; mask < power; mask *= 2) {
    const int other = number ^ mask;
    const int width = last - first;
    const int theirs_first = (number & mask) != 0 ? first - width : first + width;
    auto sending = c.send(rank_of(other), data + parts.begin(first), parts.bytes(first, last));
    co_await c.receive(rank_of(other), data + parts.begin(theirs_first),
                       parts.bytes(theirs_first, theirs_first + width));
    co_await sending;
    first = first < theirs_first ? first : theirs_first;
    last = first + 2 * width;
  }
  if (rank < 2 * extra) {
    co_await c.send(rank + 1, data, bytes);
  }
}

}  // namespace tutti::coll
