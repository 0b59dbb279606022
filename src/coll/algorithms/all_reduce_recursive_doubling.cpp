// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: in round k, ranks that differ in bit k exchange everything they have, and both reduce
// it. ceil(log2 P) rounds of n bytes each way: few steps, for small n. Ranks beyond the largest power of two
// first send their data to a neighbour and receive the result from it: two more steps for them. The block of
// the lower ranks is always the left operand, so both sides of an exchange compute the same bits.
#include "coll/algorithms.hpp"
#include "coll/reduce.hpp"

namespace tutti::coll {

task<> all_reduce_recursive_doubling(collective c, reduce_call r) {
  r.copy_input();
  const std::size_t bytes = r.count * r.element_bytes;
  const int size = c.size();
  const int rank = c.rank();
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int extra = size - power;  // ranks 2i+1 for i < extra are folded into ranks 2i
  auto lease = c.scratch().take(bytes);
  std::byte* const theirs = lease.data();
  char* const mine = static_cast<char*>(r.data);

  if (rank < 2 * extra && rank % 2 == 1) {
    co_await c.send(rank - 1, mine, bytes);
    co_await c.receive(rank - 1, mine, bytes);
    co_return;
  }
  if (rank < 2 * extra) {
    co_await c.receive(rank + 1, theirs, bytes);
    combine(r.op, r.type, mine, theirs, mine, r.count);
  }
  // Numbers of the remaining ranks keep the order of the ranks.
  const int number = rank < 2 * extra ? rank / 2 : rank - extra;
  for (int mask = 1; mask < power; mask *= 2) {
    const int other_number = number ^ mask;
    const int other = other_number < extra ? other_number * 2 : other_number + extra;
    auto sending = c.send(other, mine, bytes);
    co_await c.receive(other, theirs, bytes);
    co_await sending;
    if (other_number < number) {
      combine(r.op, r.type, theirs, mine, mine, r.count);
    } else {
      combine(r.op, r.type, mine, theirs, mine, r.count);
    }
  }
  finish(r.op, r.type, mine, r.count, r.ranks);
  if (rank < 2 * extra) {
    co_await c.send(rank + 1, mine, bytes);
  }
}

}  // namespace tutti::coll
