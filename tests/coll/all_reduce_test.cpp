// SPDX-License-Identifier: Apache-2.0
// all_reduce: the same bits on every rank and in every run, also of NaNs and infinities; several in flight;
// elements of users. The suite in coll/conformance compares every algorithm with a serial result.
#include "coll/algorithms.hpp"
#include "coll/conformance/worlds.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"
#include "support/second_loop.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

// Algorithms that work on any number of ranks.
const std::vector<algorithm>& algorithms() {
  static const std::vector<algorithm> all = [] {
    std::vector<algorithm> found;
    coll::situation anywhere;
    anywhere.kind = coll::operation_kind::all_reduce;
    for (const algorithm a : all_algorithms())
      if (coll::fits(a, anywhere)) found.push_back(a);
    return found;
  }();
  return all;
}

const std::vector<int>& rank_counts() {
  static const std::vector<int> all = instrumented       ? std::vector{1, 2, 3}
                                      : is_second_loop() ? std::vector{3, 4}
                                                         : std::vector{1, 2, 3, 4, 5, 8};
  return all;
}

std::uint64_t hash_of(const void* data, std::size_t length, std::uint64_t hash = 0xcbf29ce484222325ULL) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < length; ++i) hash = (hash ^ p[i]) * 0x100000001b3ULL;
  return hash;
}

// Rank 0 receives the hashes of all ranks, and they are equal.
task<> expect_same_everywhere(communicator world, std::uint64_t hash) {
  if (world.rank() != 0) {
    co_await world.send(hash, 0, 77);
    co_return;
  }
  for (int r = 1; r < world.size(); ++r) {
    std::uint64_t theirs = 0;
    co_await world.recv(theirs, r, 77);
    TUTTI_EXPECT(theirs == hash);
  }
}

// Numbers of very different size, so that their sum depends on the order; and arbitrary bits.
template <class T>
T rough(random_numbers& numbers) {
  using limits = std::numeric_limits<T>;
  switch (numbers.below(24)) {
    case 0:
      return limits::quiet_NaN();
    case 1:
      return -limits::quiet_NaN();
    case 2:
      return T(-0.0);
    case 3:
      return T(0.0);
    case 4:
      return limits::infinity();
    case 5:
      return -limits::infinity();
    case 6:
      return limits::denorm_min();
    default:
      return std::ldexp(static_cast<T>(static_cast<std::int64_t>(numbers.next() >> 12)) - T(1ULL << 51),
                        static_cast<int>(numbers.below(60)) - 80);
  }
}

template <class T, class Op>
task<> rough_numbers_by(communicator world, Op op, std::vector<std::uint64_t>* hashes) {
  for (const std::size_t count : {1, 2, 3, 5, 17, 1031, 20'011}) {
    for (const algorithm a : algorithms()) {
      random_numbers numbers(static_cast<std::uint64_t>(world.rank()) * 1000 + count);
      std::vector<T> data(count);
      for (T& x : data) x = rough<T>(numbers);
      co_await world.all_reduce(data, op).with(a);
      const std::uint64_t hash = hash_of(data.data(), count * sizeof(T));
      co_await expect_same_everywhere(world, hash);
      if (world.rank() == 0) hashes->push_back(hash);
    }
  }
}

template <class T>
task<> rough_numbers(communicator world, std::vector<std::uint64_t>* hashes) {
  co_await rough_numbers_by<T>(world, sum, hashes);
  co_await rough_numbers_by<T>(world, product, hashes);
  co_await rough_numbers_by<T>(world, tutti::min, hashes);
  co_await rough_numbers_by<T>(world, tutti::max, hashes);
  co_await rough_numbers_by<T>(world, avg, hashes);
}

task<> several_in_flight(communicator world) {
  const int n = world.size();
  const double all = n * (n + 1) / 2.0;
  for (int round = 0; round < 5; ++round) {
    std::vector<float> small(10, static_cast<float>(world.rank() + 1));
    std::vector<double> large(100'000, world.rank() + 1);
    std::vector<std::int32_t> middle(9'001, world.rank() + 1);
    std::vector<float> averaged(50'000, static_cast<float>(world.rank() + 1));
    std::vector<int> from_root(30'000, world.rank() == 1 % n ? 5 : 0);
    request a = start(world.all_reduce(large, sum));
    request b = start(world.all_reduce(small, tutti::max));
    request c = start(world.barrier());
    request d = start(world.broadcast(from_root, 1 % n));
    request e = start(world.all_reduce(middle, product));
    request f = start(world.all_reduce(averaged, avg));
    // Awaited in a different order on each rank.
    std::vector<request*> order = {&a, &b, &c, &d, &e, &f};
    std::rotate(order.begin(), order.begin() + (world.rank() + round) % 6, order.end());
    for (request* r : order) co_await *r;
    double factorial = 1;
    for (int r = 2; r <= n; ++r) factorial *= r;
    TUTTI_EXPECT(std::all_of(large.begin(), large.end(), [all](double x) { return x == all; }));
    TUTTI_EXPECT(
        std::all_of(small.begin(), small.end(), [n](float x) { return x == static_cast<float>(n); }));
    TUTTI_EXPECT(std::all_of(from_root.begin(), from_root.end(), [](int x) { return x == 5; }));
    TUTTI_EXPECT(std::all_of(middle.begin(), middle.end(),
                             [factorial](int x) { return x == static_cast<int>(factorial); }));
    const auto average = static_cast<float>(all / n);
    TUTTI_EXPECT(std::all_of(averaged.begin(), averaged.end(), [average](float x) { return x == average; }));
    float one = 1;
    std::int64_t two = 2;
    co_await when_all(world.all_reduce(one, sum), world.all_reduce(two, sum), world.barrier());
    TUTTI_EXPECT(one == static_cast<float>(n));
    TUTTI_EXPECT(two == 2 * n);
  }
}

struct place {  // of the largest value
  float value;
  int rank;
};

task<> opaque_elements(communicator world) {
  const auto larger = [](const place& a, const place& b) {
    return a.value != b.value ? (a.value < b.value ? b : a) : (a.rank < b.rank ? a : b);
  };
  for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20'000}}) {
    std::vector<place> mine(count);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = {static_cast<float>((i + static_cast<std::size_t>(world.rank()) * 3) % 7), world.rank()};
    std::vector<place> best(count);
    co_await world.all_reduce(mine, best, larger);
    for (std::size_t i = 0; i < count; ++i) {
      place wanted{-1, 0};
      for (int r = 0; r < world.size(); ++r)
        wanted = larger(wanted, place{static_cast<float>((i + static_cast<std::size_t>(r) * 3) % 7), r});
      TUTTI_EXPECT(best[i].value == wanted.value);
      TUTTI_EXPECT(best[i].rank == wanted.rank);
    }
  }
}

template <std::size_t Alignment>
struct aligned_number {
  alignas(Alignment) std::uint32_t value;
};
template <class T>
T larger_of_aligned(const T& a, const T& b) {
  for (const T* const at : {&a, &b}) {
    const volatile auto address = reinterpret_cast<std::uintptr_t>(at);  // unknown to the compiler
    if (address % alignof(T) != 0) throw std::runtime_error("an element is not aligned");
  }
  return a.value < b.value ? b : a;
}

template <std::size_t Alignment>
task<> aligned_elements(communicator world) {
  using element = aligned_number<Alignment>;
  const auto larger = [](const element& a, const element& b) { return larger_of_aligned(a, b); };
  const auto ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t count : {1, 3, 500, 20'000}) {
    const std::vector<element> mine(count * ranks, element{static_cast<std::uint32_t>(world.rank())});
    std::vector<element> reduced(count);
    const auto expect_largest = [&](std::size_t largest) {
      for (const element& e : reduced) TUTTI_EXPECT(e.value == largest);
    };
    const std::span first(mine.data(), count);
    for (const algorithm a : algorithms()) {
      co_await world.all_reduce(first, reduced, larger).with(a);
      expect_largest(ranks - 1);
    }
    co_await world.reduce_scatter(mine, reduced, larger);
    expect_largest(ranks - 1);
    co_await world.scan(first, reduced, larger);
    expect_largest(static_cast<std::size_t>(world.rank()));
    co_await world.reduce(first, reduced, larger, 0);
    expect_largest(world.rank() == 0 ? ranks - 1 : static_cast<std::size_t>(world.rank()));
  }
}

// A round of such elements is longer than the stream of a collective segment, or than what is left of it.
template <std::size_t N>
task<> long_elements(communicator world) {
  struct table {
    std::array<std::uint32_t, N> values;
  };
  std::vector<int> before(20'000, 1);
  co_await world.all_reduce(before, sum);
  const auto add = [](const table& a, const table& b) {
    auto both = std::make_unique<table>();
    for (std::size_t i = 0; i < a.values.size(); ++i) both->values[i] = a.values[i] + b.values[i];
    return *both;
  };
  const auto n = static_cast<std::uint32_t>(world.size()), of_ranks = n * (n + 1) / 2;
  std::vector<table> mine(n), reduced(1);
  for (table& t : mine) t.values.fill(static_cast<std::uint32_t>(world.rank()) + 1);
  co_await world.reduce_scatter(mine, reduced, add);
  TUTTI_EXPECT(reduced[0].values.back() == of_ranks);
  co_await world.reduce(std::span(mine).first(1), reduced, add, world.size() - 1);
  if (world.rank() + 1 == world.size()) TUTTI_EXPECT(reduced[0].values.back() == of_ranks);
  co_await world.all_reduce(mine[0], add);
  TUTTI_EXPECT(mine[0].values.front() == of_ranks);
  TUTTI_EXPECT(mine[0].values.back() == of_ranks);
}

// Elements of which a round fills half the stream of a collective segment, and longer ones, at several positions.
template <std::size_t N>
task<> long_elements_at(communicator world) {
  struct bytes {
    std::array<std::uint8_t, N> values;
  };
  const auto larger = [](const bytes& a, const bytes& b) { return a.values < b.values ? b : a; };
  for (const std::size_t before : {0, 70, 100'000, 262'144}) {
    std::vector<std::byte> moved(before);
    co_await world.broadcast(moved, 0);
    std::vector<bytes> data(20);
    for (bytes& b : data) b.values.fill(static_cast<std::uint8_t>(world.rank() + 1));
    co_await world.all_reduce(data, larger);
    for (const bytes& b : data)
      TUTTI_EXPECT(std::ranges::count(b.values, world.size()) == std::ssize(b.values));
  }
}

// Integers wrap around in two's complement.
task<> integers_wrap(communicator world) {
  std::int32_t large = std::numeric_limits<std::int32_t>::max();
  co_await world.all_reduce(large, sum);
  const auto n = static_cast<std::uint32_t>(world.size());
  TUTTI_EXPECT(large == static_cast<std::int32_t>(n * 0x7fffffffU));
  std::int64_t huge = std::numeric_limits<std::int64_t>::min();
  co_await world.all_reduce(huge, product);
  TUTTI_EXPECT(huge == (world.size() == 1 ? std::numeric_limits<std::int64_t>::min() : 0));
}

template <class F>
void on_all(F main) {
  for (const std::string& transport : transports) {
    for (const int ranks : rank_counts()) {
      CAPTURE(transport);
      CAPTURE(ranks);
      CHECK_NOTHROW(run_local(ranks, over(transport), main));
    }
  }
}

}  // namespace

TEST_CASE("all_reduce: several in flight") { on_all(several_in_flight); }
TEST_CASE("all_reduce: elements that only a user's reduction accepts") { on_all(opaque_elements); }
TEST_CASE("all_reduce: a user's elements are aligned wherever a reduction gets them") {
  on_all(aligned_elements<32>);
  on_all(aligned_elements<64>);
}
TEST_CASE("all_reduce: elements of megabytes") { on_all(long_elements<600'000>); }
TEST_CASE("all_reduce: elements of 64 KiB on 16 ranks") { run_local(16, over("shm"), long_elements<16'384>); }
TEST_CASE("all_reduce: elements of kilobytes on as many ranks as a collective segment can have") {
  const scoped_variable flat("TUTTI_FLAT_RANKS", "32");
  for (const int ranks : {17, 31, 32}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(run_local(ranks, over("shm"), long_elements_at<8192>));
    CHECK_NOTHROW(run_local(ranks, over("shm"), long_elements_at<15'400>));
  }
}
TEST_CASE("all_reduce: integers wrap around") { on_all(integers_wrap); }

TEST_CASE("all_reduce: the same bits on all ranks, in every run, over every transport") {
  for (const int ranks : rank_counts()) {
    CAPTURE(ranks);
    std::vector<std::uint64_t> first;
    for (const std::string transport : {"shm", "shm", "tcp"}) {
      CAPTURE(transport);
      std::vector<std::uint64_t> hashes;
      CHECK_NOTHROW(run_local(ranks, over(transport), [&hashes](communicator world) {
        return rough_numbers<float>(std::move(world), &hashes);
      }));
      CHECK_NOTHROW(run_local(ranks, over(transport), [&hashes](communicator world) {
        return rough_numbers<double>(std::move(world), &hashes);
      }));
      if (first.empty()) first = hashes;
      CHECK(hashes == first);
    }
  }
}

TEST_CASE("all_reduce: halves are rounded once by every algorithm") {
  for (const std::string& transport : transports)
    run_local(5, over(transport), [](communicator world) -> task<> {
      // In halves 2048 + 1 is 2048 again.
      const std::vector<float16> in(20'000, float16(world.rank() == 0 ? 2048.0F : 1.0F));
      std::vector<float16> out(in.size());
      std::vector<algorithm> all = algorithms();
      all.push_back(algorithm::automatic);
      for (const algorithm a : all) {
        co_await world.all_reduce(in, out, sum).with(a);
        for (const float16 v : out) TUTTI_EXPECT(v == 2052.0F);
        co_await world.all_reduce(in, out, avg).with(a);
        for (const float16 v : out) TUTTI_EXPECT(v == float16(410.4F));
      }
    });
}
