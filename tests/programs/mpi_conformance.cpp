// SPDX-License-Identifier: Apache-2.0
// Every operation over the transport that the environment selects (TUTTI_BACKEND=mpi under mpirun, or
// tutti-run). Runs each collective with each of its algorithms, against results that each rank computes
// alone. Rank 0 prints the number of checks; a wrong result ends the program with its description.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using numbers = std::vector<std::int64_t>;
using tutti::algorithm;

// Below and above what one frame carries (16 KiB), and several slices of 128 KiB.
const std::vector<std::size_t> counts = {0, 1, 5, 1000, 2048, 2049, 100'003};

long checks = 0;

void expect(bool holds, const std::string& what) {
  ++checks;
  if (!holds) throw std::runtime_error("wrong: " + what);
}

std::int64_t value(int rank, std::size_t i) {
  return (rank + 1) * static_cast<std::int64_t>(i % 97 + 1) + static_cast<std::int64_t>(i % 11);
}

numbers of_rank(int rank, std::size_t count, std::size_t first = 0) {
  numbers made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value(rank, first + i);
  return made;
}

// Elements from `first` on of the sum over the ranks 0 .. ranks - 1.
numbers sum_of(int ranks, std::size_t count, std::size_t first = 0) {
  numbers made(count, 0);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < count; ++i) made[i] += value(r, first + i);
  return made;
}

numbers joined(int ranks, std::size_t count, std::size_t first = 0) {
  numbers made;
  for (int r = 0; r < ranks; ++r) {
    const numbers one = of_rank(r, count, first);
    made.insert(made.end(), one.begin(), one.end());
  }
  return made;
}

// Awaits it with this algorithm. Returns false if the algorithm does not exist or does not apply.
template <class Operation>
tutti::task<bool> done_with(Operation op, algorithm a) {
  bool fits = true;
  try {
    co_await std::move(op).with(a);
  } catch (const tutti::error& e) {
    if (e.code() != tutti::errc::invalid_argument) throw;
    fits = false;
  }
  co_return fits;
}

std::string text(const char* what, algorithm a, std::size_t count) {
  return std::string(what) + " with " + tutti::name_of(a) + " of " + std::to_string(count);
}

tutti::task<> rooted(tutti::communicator c, algorithm a, std::size_t n, int root) {
  const int me = c.rank();
  const int size = c.size();
  const bool is_root = me == root;
  bool fits = false;

  numbers data = is_root ? of_rank(root, n) : numbers(n, -1);
  fits = co_await done_with(c.broadcast(data, root), a);
  if (fits) expect(data == of_rank(root, n), text("broadcast", a, n));

  const numbers mine = of_rank(me, n);
  numbers total(is_root ? n : 0, -1);
  fits = co_await done_with(c.reduce(mine, total, tutti::sum, root), a);
  if (fits && is_root) expect(total == sum_of(size, n), text("reduce", a, n));

  const numbers all = is_root ? joined(size, n) : numbers();
  numbers block(n, -1);
  fits = co_await done_with(c.scatter(all, block, root), a);
  if (fits) expect(block == mine, text("scatter", a, n));

  numbers gathered(is_root ? all.size() : 0, -1);
  fits = co_await done_with(c.gather(mine, gathered, root), a);
  if (fits) expect(gathered == all, text("gather", a, n));
}

tutti::task<> unrooted(tutti::communicator c, algorithm a, std::size_t n) {
  const int me = c.rank();
  const int size = c.size();
  const auto blocks = static_cast<std::size_t>(size);
  bool fits = false;

  numbers sum = of_rank(me, n);
  fits = co_await done_with(c.all_reduce(sum, tutti::sum), a);
  if (fits) expect(sum == sum_of(size, n), text("all_reduce", a, n));

  const numbers mine = of_rank(me, n);
  numbers everything(n * blocks, -1);
  fits = co_await done_with(c.all_gather(mine, everything), a);
  if (fits) expect(everything == joined(size, n), text("all_gather", a, n));

  const numbers long_one = of_rank(me, n * blocks);
  numbers part(n, -1);
  fits = co_await done_with(c.reduce_scatter(long_one, part, tutti::sum), a);
  if (fits) expect(part == sum_of(size, n, static_cast<std::size_t>(me) * n), text("reduce_scatter", a, n));

  numbers turned(n * blocks, -1);
  fits = co_await done_with(c.all_to_all(long_one, turned), a);
  if (fits) expect(turned == joined(size, n, static_cast<std::size_t>(me) * n), text("all_to_all", a, n));

  numbers prefix(n, -1);
  fits = co_await done_with(c.scan(mine, prefix, tutti::sum), a);
  if (fits) expect(prefix == sum_of(me + 1, n), text("scan", a, n));
  numbers before(n, 0);
  fits = co_await done_with(c.exclusive_scan(mine, before, tutti::sum), a);
  if (fits) expect(before == sum_of(me, n), text("exclusive_scan", a, n));

  fits = co_await done_with(c.barrier(), a);
  if (fits) expect(true, "barrier");
}

tutti::task<> uneven(tutti::communicator c, std::size_t n) {
  const int me = c.rank();
  const auto blocks = static_cast<std::size_t>(c.size());
  std::vector<std::size_t> lengths(blocks);
  for (std::size_t r = 0; r < blocks; ++r) lengths[r] = n * r + r % 2;
  const std::size_t total = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  const std::size_t mine = lengths[static_cast<std::size_t>(me)];
  const std::size_t first = std::accumulate(lengths.begin(), lengths.begin() + me, std::size_t{0});
  numbers all;
  for (std::size_t r = 0; r < blocks; ++r) {
    const numbers one = of_rank(static_cast<int>(r), lengths[r]);
    all.insert(all.end(), one.begin(), one.end());
  }
  const numbers own = of_rank(me, mine);

  numbers got(total, -1);
  co_await c.all_gather_v(own, got, lengths);
  expect(got == all, text("all_gather_v", algorithm::automatic, n));
  numbers part(mine, -1);
  co_await c.scatter_v(all, lengths, part, 0);
  expect(part == own, text("scatter_v", algorithm::automatic, n));
  numbers gathered(me == 0 ? total : 0, -1);
  co_await c.gather_v(own, gathered, lengths, 0);
  expect(me != 0 || gathered == all, text("gather_v", algorithm::automatic, n));
  const numbers contribution = of_rank(me, total);
  co_await c.reduce_scatter_v(contribution, lengths, part, tutti::sum);
  expect(part == sum_of(c.size(), mine, first), text("reduce_scatter_v", algorithm::automatic, n));
  std::vector<std::size_t> from_each(blocks, mine);
  numbers turned(mine * blocks, -1);
  co_await c.all_to_all_v(contribution, lengths, turned, from_each);
  expect(turned == joined(c.size(), mine, first), text("all_to_all_v", algorithm::automatic, n));

  numbers one = of_rank(me, n);
  numbers two = of_rank(me, 2 * n + 1);
  const std::vector<std::span<std::int64_t>> list = {one, two};
  co_await c.all_reduce(list, tutti::sum);
  expect(one == sum_of(c.size(), n) && two == sum_of(c.size(), 2 * n + 1),
         text("list", algorithm::automatic, n));
}

tutti::task<> messages(tutti::communicator c) {
  const int me = c.rank();
  const int size = c.size();
  const int next = (me + 1) % size;
  const int previous = (me + size - 1) % size;
  // Many at once, of all lengths, received in order.
  std::vector<numbers> out;
  std::vector<numbers> in;
  for (int round = 0; round < 4; ++round)
    for (const std::size_t n : counts) {
      out.push_back(of_rank(me, n, static_cast<std::size_t>(round)));
      in.emplace_back(n, -1);
    }
  std::vector<tutti::request> pending;
  for (std::size_t i = 0; i < out.size(); ++i) pending.push_back(c.isend(out[i], next, 3));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const tutti::status s = co_await c.recv(in[i], previous, 3);
    expect(s.source == previous && s.bytes == in[i].size() * sizeof(std::int64_t), "the status of a message");
  }
  for (tutti::request& r : pending) co_await r;
  for (std::size_t i = 0; i < in.size(); ++i)
    expect(in[i] == of_rank(previous, in[i].size(), i / counts.size()), "message " + std::to_string(i));

  // To itself; from any rank, after a probe.
  std::int64_t self = 0;
  const std::int64_t sent = 17 + me;
  tutti::request to_self = c.isend(sent, me, 4);
  co_await c.recv(self, me, 4);
  co_await to_self;
  expect(self == sent, "a message to oneself");
  tutti::request hello = c.isend(sent, 0, 5);
  if (me == 0) {
    std::vector<bool> heard(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) {
      const tutti::status waiting = co_await c.probe(tutti::any_source, 5);
      std::int64_t got = 0;
      tutti::matched_message m = co_await c.matched_probe(tutti::any_source, 5);
      const tutti::status s = co_await m.recv(got);
      heard[static_cast<std::size_t>(s.source)] = true;
      expect(got == 17 + s.source && waiting.bytes == sizeof got, "a message from any rank");
    }
    expect(std::find(heard.begin(), heard.end(), false) == heard.end(), "messages from every rank");
  }
  co_await hello;

  // Cancelled, eager or rendezvous: later messages are not affected, and the memory is free at once.
  for (const std::size_t n : {std::size_t{10}, std::size_t{100'003}}) {
    {
      numbers gone = of_rank(me, n);
      tutti::request dropped = c.isend(gone, next, 1000);
      numbers never(n, -1);
      tutti::request unwanted = c.irecv(never, previous, 1001);
    }
    const numbers kept = of_rank(me, n);
    numbers got(n, -1);
    tutti::request sending = c.isend(kept, next, 6);
    co_await c.recv(got, previous, 6);
    co_await sending;
    expect(got == of_rank(previous, n), "a message behind one that was taken back");
  }
}

tutti::task<> groups(tutti::communicator world) {
  const int me = world.rank();
  tutti::communicator half = co_await world.split(me % 2, -me);
  std::int64_t members = 1;
  co_await half.all_reduce(members, tutti::sum);
  expect(members == half.size(), "a sum in a half");
  const std::vector<int> last_first = {world.size() - 1, 0};
  tutti::communicator pair;
  if (world.size() > 1) pair = co_await world.group(last_first);
  if (pair) {
    std::int64_t from = me;
    co_await pair.broadcast(from, 0);
    expect(from == world.size() - 1, "a broadcast in a group");
  }
  tutti::communicator again = co_await world.duplicate();
  const std::vector<std::string> words =
      co_await tutti::all_gather_object(again, std::string(std::size_t(me) * 1000, 'x'));
  for (std::size_t r = 0; r < words.size(); ++r) expect(words[r].size() == r * 1000, "objects");

  // Ranks in different collectives get an error. It ends everything on that communicator, so the objects must
  // have arrived before.
  co_await world.barrier();
  if (world.size() > 1) {
    std::string complaint;
    numbers some(me == 0 ? 3 : 4, 1);
    try {
      co_await again.all_reduce(some, tutti::sum);
    } catch (const tutti::error& e) {
      complaint = e.what();
    }
    // A rank that calls after the others have noticed gets the error of a failed communicator, with the same
    // text.
    expect(complaint.find("called all_reduce(3 elements of int64") != complaint.npos,
           "a mismatch: " + complaint);
  }
  co_await world.barrier();
}

tutti::task<> run(tutti::communicator world) {
  std::vector<algorithm> algorithms{algorithm::automatic};
  for (const algorithm a : tutti::all_algorithms()) algorithms.push_back(a);
  for (const algorithm a : algorithms)
    for (const std::size_t n : counts) {
      co_await unrooted(world, a, n);
      co_await rooted(world, a, n, static_cast<int>(n) % world.size());
    }
  for (const std::size_t n : counts) co_await uneven(world, n);
  co_await messages(world);
  co_await groups(world);
  std::int64_t all = checks;
  co_await world.all_reduce(all, tutti::sum);
  if (world.rank() == 0) std::printf("%d ranks, %ld checks passed\n", world.size(), static_cast<long>(all));
}

}  // namespace

int main() { return tutti::run(run); }
