// SPDX-License-Identifier: Apache-2.0
// Sums that depend on the order of their addends: the same bits on all ranks, in and out of place, and in
// every run, for every size and algorithm. Named algorithms also give the same bits over every transport.
#include "coll/conformance/worlds.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <deque>
#include <map>

using namespace tutti;
using namespace tutti::test;

namespace {

using kind = coll::operation_kind;

// The results of one rank, in the order of the program.
using record = std::vector<std::uint64_t>;
using records = std::vector<record>;  // by rank

std::span<const std::byte> bits_of(const auto& elements) { return std::as_bytes(std::span(elements)); }

std::uint64_t hash_of(std::span<const std::byte> data) {
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ data.size();
  while (!data.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(data.size(), sizeof word);
    std::memcpy(&word, data.data(), taken);
    hash = (hash ^ word) * 0x100000001b3ULL;
    hash ^= hash >> 29;  // mixes high bits into low ones
    data = data.subspan(taken);
  }
  return hash;
}

// Values of both signs, whose magnitudes differ so much that sums lose bits.
template <class T>
std::vector<T> rough(int rank, std::size_t count) {
  random_numbers numbers(static_cast<std::uint64_t>(rank) * 7919 + count);
  const auto one = [&numbers] {
    const double fraction = 1.0 + static_cast<double>(numbers.next() >> 11) * 0x1p-53;
    return std::ldexp(numbers.one_in(2) ? fraction : -fraction, static_cast<int>(numbers.below(9)) - 4);
  };
  std::vector<T> made(count);
  for (T& x : made) {
    if constexpr (std::is_same_v<T, std::complex<float>>) {
      const double real = one();
      x = T(static_cast<float>(real), static_cast<float>(one()));
    } else {
      x = T(static_cast<float>(one()));
      if constexpr (std::is_same_v<T, double>) x = one();
    }
  }
  return made;
}

// Bits travel around the ring once. If every rank equals its left neighbour, all are equal.
task<> expect_those_of_the_neighbour(communicator world, std::span<const std::byte> mine, attempt what) {
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  bytes theirs(mine.size());
  request sending = world.isend(mine, right, 1);
  co_await world.recv(theirs, left, 1);
  co_await sending;
  expect_equal(mine, theirs, what);
}

// The sum by one algorithm in three forms, and the average.
template <class T>
struct four_ways {
  four_ways(const communicator& world, const std::vector<T>& in, algorithm a)
      : with(a), out(in.size()), inout(in), listed(in), average(in.size()) {
    list = {std::span(listed).first(in.size() / 3), std::span(listed).subspan(in.size() / 3)};
    running.push_back(start(world.all_reduce(in, out, sum).with(a)));
    running.push_back(start(world.all_reduce(inout, sum).with(a)));
    running.push_back(start(world.all_reduce(list, sum).with(a)));
    running.push_back(start(world.all_reduce(in, average, avg).with(a)));
  }
  algorithm with;
  std::vector<T> out;
  std::vector<T> inout;
  std::vector<T> listed;
  std::vector<T> average;
  std::vector<std::span<T>> list;
  std::vector<request> running;
};

template <class T>
task<> all_reduces(communicator world, const setting* where, std::vector<std::size_t> counts,
                   record* results) {
  for (const std::size_t count : counts) {
    const std::vector<T> in = rough<T>(world.rank(), count);
    std::deque<four_ways<T>> all;
    for (const algorithm a : where->algorithms(kind::all_reduce)) all.emplace_back(world, in, a);
    std::vector<T> together;
    attempt what{
        kind::all_reduce, name_of(detail::element_type_of<T>()), algorithm::automatic, count, 0, false,
        world.rank()};
    for (four_ways<T>& each : all) {
      what.with = each.with;
      for (request& r : each.running) co_await r;
      expect_equal(bits_of(each.inout), bits_of(each.out), what);
      expect_equal(bits_of(each.listed), bits_of(each.out), what);
      results->push_back(hash_of(bits_of(each.out)));
      results->push_back(hash_of(bits_of(each.average)));
      together.insert(together.end(), each.out.begin(), each.out.end());
      together.insert(together.end(), each.average.begin(), each.average.end());
    }
    co_await expect_those_of_the_neighbour(world, bits_of(together), what);
  }
}

// Their results differ between ranks, but not between runs.
task<> others(communicator world, const setting* where, std::vector<std::size_t> counts, record* results) {
  for (const std::size_t count : counts) {
    const std::vector<float> in = rough<float>(world.rank(), count * static_cast<std::size_t>(world.size()));
    const auto one = std::span(in).first(count);
    std::vector<float> out(count);
    for (const algorithm a : where->algorithms(kind::reduce)) {
      co_await world.reduce(one, out, sum, world.size() - 1).with(a);
      results->push_back(hash_of(bits_of(out)));
    }
    for (const algorithm a : where->algorithms(kind::reduce_scatter)) {
      co_await world.reduce_scatter(in, out, sum).with(a);
      results->push_back(hash_of(bits_of(out)));
    }
    for (const algorithm a : where->algorithms(kind::scan)) {
      co_await world.scan(one, out, sum).with(a);
      results->push_back(hash_of(bits_of(out)));
      co_await world.exclusive_scan(one, out, sum).with(a);
      results->push_back(hash_of(bits_of(out)));
    }
  }
}

// Bits may differ, but the result must be close.
task<> close_to_the_sum(communicator world, const setting* where) {
  constexpr std::size_t count = 5000;
  const std::vector<float> in = rough<float>(world.rank(), count);
  std::vector<double> exact(count);
  std::vector<double> magnitude(count);
  for (int r = 0; r < world.size(); ++r) {
    const std::vector<float> theirs = rough<float>(r, count);
    for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(theirs[i]);
    for (std::size_t i = 0; i < count; ++i) magnitude[i] += std::abs(static_cast<double>(theirs[i]));
  }
  for (const algorithm a : where->algorithms(kind::all_reduce)) {
    std::vector<float> out(count);
    co_await world.all_reduce(in, out, sum).with(a);
    for (std::size_t i = 0; i < count; ++i)
      TUTTI_EXPECT(std::abs(static_cast<double>(out[i]) - exact[i]) <= magnitude[i] * world.size() * 0x1p-24);
  }
}

task<> program(communicator world, const setting* where, records* results) {
  record* const mine = &(*results)[static_cast<std::size_t>(world.rank())];
  // Each just above a threshold, or far from all thresholds.
  std::vector<std::size_t> counts = {1, 3, 61, 1001, 30'011};
  for (const std::size_t threshold :
       {read_in_place_bytes, 32 * KiB, shm_eager_bytes, tcp_eager_bytes, 1024 * KiB})
    counts.push_back(threshold / sizeof(float) + 1);
  const std::vector<std::size_t> few = {1, 7, 1025, 16'385};
  co_await all_reduces<float>(world, where, counts, mine);
  co_await all_reduces<double>(world, where, few, mine);
  co_await all_reduces<float16>(world, where, few, mine);
  co_await all_reduces<bfloat16>(world, where, few, mine);
  co_await all_reduces<std::complex<float>>(world, where, few, mine);
  co_await others(world, where, few, mine);
  co_await close_to_the_sum(world, where);
}

// Algorithms available on every transport.
task<> named(communicator world, records* results) {
  record* const mine = &(*results)[static_cast<std::size_t>(world.rank())];
  coll::situation anywhere;
  anywhere.kind = kind::all_reduce;
  for (const std::size_t count : {std::size_t{7}, std::size_t{1025}, std::size_t{100'003}}) {
    const std::vector<float> in = rough<float>(world.rank(), count);
    std::vector<float> out(count);
    for (const algorithm a : all_algorithms()) {
      if (!coll::fits(a, anywhere)) continue;
      co_await world.all_reduce(in, out, sum).with(a);
      mine->push_back(hash_of(bits_of(out)));
    }
  }
}

}  // namespace

TEST_CASE("same bits: over every transport") {
  for (const int ranks : {3, 5}) {
    CAPTURE(ranks);
    std::vector<records> all;
    for (const std::string& transport : transports) {
      records results(static_cast<std::size_t>(ranks));
      CHECK_NOTHROW(run_local(ranks, over(transport),
                              [&results](communicator world) { return named(std::move(world), &results); }));
      all.push_back(results);
    }
    CHECK(all.front() == all.back());
  }
}

TEST_CASE("same bits: on all ranks and in every run") {
  std::map<std::string, records> seen;  // by everything that may change the bits
  for (const setting& where : settings()) {
    const std::string name = where.name();
    CAPTURE(name);
    for (int run = 0; run < 2; ++run) {
      records results(static_cast<std::size_t>(where.ranks));
      CHECK_NOTHROW(run_in(where, [&results](communicator world, const setting* here) {
        return program(std::move(world), here, &results);
      }));
      const auto [before, is_first] =
          seen.try_emplace(where.transport + std::to_string(where.ranks) + where.hosts +
                               (where.two_levels ? " in two levels" : ""),
                           results);
      CHECK(results == before->second);
    }
  }
}
