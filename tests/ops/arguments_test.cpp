// SPDX-License-Identifier: Apache-2.0
// Invalid arguments: refused with the numbers in the text, before any transfer, so that the communicator
// still works.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

using floats = std::vector<float>;
using counts = std::vector<std::size_t>;

// Three ranks. Checks of ranks run on each of them.
constexpr int ranks = 3;

template <class Operation>
task<> refused(Operation op, std::string why) {
  const failure f = co_await failure_in(std::move(op));
  if (f.code != errc::invalid_argument || !f.says(why))
    throw std::runtime_error("wanted '" + why + "', got '" + f.text + "'");
}

task<> roots(communicator world) {
  floats a(4), b(4), all(12);
  const counts four = {4, 4, 4};
  for (const int root : {-1, ranks, 1000}) {
    const std::string why = "the root " + std::to_string(root) + " is outside world, whose ranks are 0 to 2";
    co_await refused(world.broadcast(a, root),
                     "broadcast on world, rank " + std::to_string(world.rank()) + ": " + why);
    co_await refused(world.reduce(a, b, sum, root), why);
    co_await refused(world.reduce(a, sum, root), why);
    co_await refused(world.scatter(all, a, root), why);
    co_await refused(world.gather(a, all, root), why);
    co_await refused(world.scatter_v(all, four, a, root), why);
    co_await refused(world.gather_v(a, all, four, root), why);
  }
}

task<> ranks_and_tags(communicator world) {
  int x = 0;
  for (const int rank : {-2, ranks}) {
    const std::string why = "rank " + std::to_string(rank) + " is outside world, whose ranks are 0 to 2";
    co_await refused(world.send(x, rank), why);
    co_await refused(world.recv(x, rank), why);
    co_await refused(world.probe(rank), why);
    co_await refused(world.matched_probe(rank), why);
  }
  co_await refused(world.send(x, any_source), "is outside world");
  for (const int tag : {-1, -7})
    co_await refused(world.send(x, 0, tag), "the tag " + std::to_string(tag) + " is negative");
  co_await refused(world.recv(x, 0, -7), "the tag -7 is negative");
  request r = world.irecv(x, 17);
  const failure f = co_await failure_awaiting(&r);
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(f.says("rank 17 is outside world"));
}

task<> even_counts(communicator world) {
  floats four(4), four_more(4), five(5), thirteen(13);
  const std::string unequal = "the input has 4 elements, the result 5; they must be equal";
  co_await refused(world.all_reduce(four, five, sum), unequal);
  co_await refused(world.scan(four, five, sum), unequal);
  co_await refused(world.exclusive_scan(four, five, sum), unequal);
  co_await refused(world.all_to_all(four, five), unequal);
  co_await refused(world.all_to_all(four, four_more),
                   "4 elements cannot be divided among 3 ranks; use all_to_all_v");
  const auto blocks = [](const char* whole, const char* block, int wrong) {
    return std::string("the ") + whole + " has " + std::to_string(wrong) + " elements, but the " + block +
           " has 4: 3 ranks need 12";
  };
  co_await refused(world.all_gather(four, thirteen), blocks("result", "input", 13));
  co_await refused(world.all_gather(four, four), blocks("result", "input", 4));
  co_await refused(world.reduce_scatter(thirteen, four, sum), blocks("input", "result", 13));
  // Only the root can detect it.
  for (int root = 0; root < ranks; ++root) {
    if (world.rank() == root) {
      co_await refused(world.reduce(four, five, sum, root), unequal);
      co_await refused(world.scatter(thirteen, four, root), blocks("input", "result", 13));
      co_await refused(world.gather(four, thirteen, root), blocks("result", "input", 13));
    }
    co_await world.barrier();
  }
}

task<> uneven_counts(communicator world) {
  const auto me = static_cast<std::size_t>(world.rank());
  const counts two = {4, 4};
  const counts right = {4, 5, 6};
  const counts less = {4, 5, 5};
  floats all(15), own(right[me]), other(right[me] + 1);
  const std::string too_few = "has 2 numbers; one per rank is needed: 3";
  const std::string not_all = "add up to 14, but the ";
  const std::string not_mine =
      "counts[" + std::to_string(me) + "] is " + std::to_string(right[me]) + ", but the ";
  const std::string has = " of this rank has " + std::to_string(right[me] + 1) + " elements";
  co_await refused(world.all_gather_v(own, all, two), too_few);
  co_await refused(world.all_gather_v(own, all, less), not_all + "result has 15 elements");
  co_await refused(world.all_gather_v(other, all, right), not_mine + "input" + has);
  co_await refused(world.reduce_scatter_v(all, two, own, sum), too_few);
  co_await refused(world.reduce_scatter_v(all, less, own, sum), not_all + "input has 15 elements");
  co_await refused(world.reduce_scatter_v(all, right, other, sum), not_mine + "result" + has);
  for (int root = 0; root < ranks; ++root) {
    if (world.rank() == root) {
      co_await refused(world.scatter_v(all, two, own, root), too_few);
      co_await refused(world.scatter_v(all, less, own, root), not_all + "input has 15 elements");
      co_await refused(world.scatter_v(all, right, other, root), not_mine + "result" + has);
      co_await refused(world.gather_v(own, all, two, root), too_few);
      co_await refused(world.gather_v(own, all, less, root), not_all + "result has 15 elements");
      co_await refused(world.gather_v(other, all, right, root), not_mine + "input" + has);
    }
    co_await world.barrier();
  }
  floats in(15), out(15);
  co_await refused(world.all_to_all_v(in, two, out, right), "in_counts " + too_few);
  co_await refused(world.all_to_all_v(in, right, out, two), "out_counts " + too_few);
  co_await refused(world.all_to_all_v(in, less, out, right),
                   "the in_counts " + not_all + "input has 15 elements");
  co_await refused(world.all_to_all_v(in, right, out, less),
                   "the out_counts " + not_all + "result has 15 elements");
  counts turned = right;
  std::swap(turned[me], turned[(me + 1) % 3]);
  co_await refused(world.all_to_all_v(in, right, out, turned),
                   "this rank sends itself " + std::to_string(right[me]) + " elements, but expects " +
                       std::to_string(turned[me]));
}

// Counts whose sum overflows must not appear to be right.
task<> counts_that_wrap(communicator world) {
  floats all(6), others(6), own(4);
  const counts wrapping = {4, 4, ~std::size_t{0} - 1};
  const std::string why = "counts[2] is 18446744073709551614: no buffer is as long";
  co_await refused(world.all_to_all_v(all, wrapping, others, wrapping), why);
  co_await refused(world.all_gather_v(own, all, wrapping), why);
}

// Counts that were computed from negative numbers. In bytes they may be 0, or only a little less.
task<> counts_beyond_memory(communicator world) {
  float one = 0;
  std::vector<std::byte> none;
  const std::string why = "more than any memory";
  for (const std::size_t count : {~std::size_t{0}, std::size_t{1} << 62, std::size_t{1} << 63}) {
    const std::span<float> many(&one, count);
    co_await refused(world.send(many, 0), why);
    co_await refused(world.recv(many, 0), why);
    co_await refused(world.broadcast(many, 0), why);
    co_await refused(world.all_reduce(many, sum), why);
    co_await refused(world.all_to_all(many, many), why);
    const std::vector<std::span<float>> list = {many};
    co_await refused(world.all_reduce(list, sum), why);
    const auto bytes = std::as_writable_bytes(std::span(&one, 1)).data();
    co_await refused(world.all_gather(std::span(bytes, count), none), why);
    co_await refused(world.reduce_scatter(none, std::span(bytes, count), std::bit_xor<>()), why);
  }
}

task<> null_pointers(communicator world) {
  floats six(6), eighteen(18);
  const std::span<float> nothing(static_cast<float*>(nullptr), 6);
  const std::string why = "the buffer of 6 elements is a null pointer";
  co_await refused(world.send(nothing, 0), why);
  co_await refused(world.recv(nothing, 0), why);
  co_await refused(world.broadcast(nothing, 0), why);
  co_await refused(world.all_reduce(nothing, sum), why);
  co_await refused(world.all_reduce(nothing, six, sum), why);
  co_await refused(world.all_reduce(six, nothing, sum), why);
  co_await refused(world.scan(six, nothing, sum), why);
  co_await refused(world.all_gather(nothing, eighteen), why);
  co_await refused(world.reduce_scatter(eighteen, nothing, sum), why);
  co_await refused(world.all_to_all(six, nothing), why);
  const std::vector<std::span<float>> list = {six, nothing};
  co_await refused(world.all_reduce(list, sum), "buffer 1 of the list is a null pointer");
}

task<> overlaps(communicator world) {
  floats memory(40);
  const std::span<float> all(memory);
  const auto me = static_cast<std::size_t>(world.rank());
  const std::string two = "the input and the result overlap; give the same buffer for both, or separate ones";
  const std::string block = "the input and the result overlap elsewhere than in this rank's own block";
  for (const std::size_t by : {std::size_t{1}, std::size_t{5}}) {
    co_await refused(world.all_reduce(all.first(6), all.subspan(by, 6), sum), two);
    co_await refused(world.all_reduce(all.subspan(by, 6), all.first(6), sum), two);
    co_await refused(world.reduce(all.first(6), all.subspan(by, 6), sum, world.rank()), two);
    co_await refused(world.scan(all.first(6), all.subspan(by, 6), sum), two);
    co_await refused(world.exclusive_scan(all.first(6), all.subspan(by, 6), sum), two);
    co_await refused(world.all_to_all(all.first(6), all.subspan(by, 6)), two);
  }
  for (const std::size_t at : {2 * me + 1, 2 * ((me + 1) % 3)}) {
    co_await refused(world.all_gather(all.subspan(at, 2), all.first(6)), block);
    co_await refused(world.gather(all.subspan(at, 2), all.first(6), world.rank()), block);
    co_await refused(world.scatter(all.first(6), all.subspan(at, 2), world.rank()), block);
    co_await refused(world.reduce_scatter(all.first(6), all.subspan(at, 2), sum), block);
  }
  const counts right = {4, 5, 6};
  const std::size_t own = right[me];
  const std::size_t wrong = me == 0 ? 1 : 0;
  co_await refused(world.all_gather_v(all.subspan(wrong, own), all.first(15), right), block);
  co_await refused(world.gather_v(all.subspan(wrong, own), all.first(15), right, world.rank()), block);
  co_await refused(world.scatter_v(all.first(15), right, all.subspan(wrong, own), world.rank()), block);
  co_await refused(world.reduce_scatter_v(all.first(15), right, all.subspan(wrong, own), sum), block);
  const counts fives = {5, 5, 5};
  co_await refused(world.all_to_all_v(all.first(15), fives, all.first(15), fives),
                   "overlap; give separate buffers");
}

// Lists must not write one place twice.
task<> lists_that_overlap(communicator world) {
  floats memory(10);
  const std::span<float> all(memory);
  const std::vector<std::span<float>> list = {all.subspan(8), all.subspan(5, 3), all.first(0), all.first(6)};
  co_await refused(world.all_reduce(list, sum), "the buffers 1 and 3 of the list overlap");
  const std::vector<std::span<float>> apart = {all.subspan(8), all.subspan(5, 3), all.first(0), all.first(5)};
  co_await world.all_reduce(apart, sum);
}

task<> groups(communicator world) {
  const std::vector<int> outside = {0, 3};
  const std::vector<int> negative = {-1};
  const std::vector<int> twice = {0, 2, 0};
  co_await refused(world.group(outside), "rank 3 is outside world, whose ranks are 0 to 2");
  co_await refused(world.group(negative), "rank -1 is outside world, whose ranks are 0 to 2");
  co_await refused(world.group(twice), "rank 0 is named twice");
}

task<> algorithms(communicator world) {
  floats x(6), y(18);
  co_await refused(world.all_reduce(x, sum).with(algorithm::bruck),
                   "all_reduce has no algorithm bruck; there are ");
  co_await refused(world.broadcast(x, 0).with(algorithm::bruck),
                   "broadcast has no algorithm bruck; there are ");
  co_await refused(world.barrier().with(algorithm::hierarchical), "needs several hosts");
  co_await refused(world.all_reduce(x, sum).with(algorithm::hierarchical_split), "needs several hosts");
  const counts six = {6, 6, 6};
  co_await refused(world.all_gather_v(x, y, six).with(algorithm::bruck), "needs blocks of equal size");
  for (const failure& f : {failure_of([&] { static_cast<void>(world.send(x, 1).with(algorithm::ring)); }),
                           failure_of([&] { static_cast<void>(world.duplicate().with(algorithm::ring)); })}) {
    TUTTI_EXPECT(f.code == errc::invalid_argument);
    TUTTI_EXPECT(f.says("has no algorithms"));
  }
  // An invalid call in a request fails when it is awaited.
  request r = start(world.barrier().with(algorithm::ring));
  const failure f = co_await failure_awaiting(&r);
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(f.says("barrier has no algorithm ring"));
}

task<> nobody(communicator world) {
  const communicator none;
  int x = 0;
  co_await refused(none.barrier(), "this communicator has no members here");
  co_await refused(none.all_reduce(x, sum), "this communicator has no members here");
  co_await refused(none.send(x, 0), "this communicator has no members here");
  co_await world.barrier();
}

// After refused calls the world works as if they had not been made.
task<> and_on(communicator world, task<> (*mistakes)(communicator)) {
  co_await mistakes(world);
  int x = world.rank() + 1;
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == 6);
}

void check(task<> (*mistakes)(communicator)) {
  const auto main = [mistakes](communicator world) { return and_on(std::move(world), mistakes); };
  CHECK_NOTHROW(run_local(ranks, over("shm"), main));
}

}  // namespace

TEST_CASE("arguments: a root outside the group") { check(roots); }
TEST_CASE("arguments: ranks and tags of messages") { check(ranks_and_tags); }
TEST_CASE("arguments: counts that contradict each other") { check(even_counts); }
TEST_CASE("arguments: counts of uneven blocks") { check(uneven_counts); }
TEST_CASE("arguments: counts whose sum wraps around") { check(counts_that_wrap); }
TEST_CASE("arguments: counts beyond all memory") { check(counts_beyond_memory); }
TEST_CASE("arguments: null pointers") { check(null_pointers); }
TEST_CASE("arguments: buffers that overlap") { check(overlaps); }
TEST_CASE("arguments: lists that overlap") { check(lists_that_overlap); }
TEST_CASE("arguments: the members of a group") { check(groups); }
TEST_CASE("arguments: unsuitable algorithms") { check(algorithms); }
TEST_CASE("arguments: an empty communicator") { check(nobody); }
