// SPDX-License-Identifier: Apache-2.0
// all_reduce, reduce, reduce_scatter, reduce_scatter_v, scan and exclusive_scan against a serial result:
// every element type, reduction and algorithm, in place and not. `Memory`: where the buffers are.
#pragma once

#include "coll/conformance/reduction_cases.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::test::reductions {

inline constexpr kind kinds[] = {kind::all_reduce,       kind::reduce, kind::reduce_scatter,
                                 kind::reduce_scatter_v, kind::scan,   kind::exclusive_scan};

// One collective in flight, with its own buffers.
template <class Memory>
struct flight {
  attempt what;
  arguments with;
  std::vector<std::size_t> counts;
  field in;
  field out;  // empty in place
  bytes wanted;
  std::optional<typename Memory::buffers> there;
  request running;
};

// The inputs and results of one case, as long as the longest vector.
template <class Memory>
class given_numbers {
 public:
  given_numbers(const communicator& world, const one_case& c, std::size_t most, const Memory* memory)
      : case_(c),
        memory_(memory),
        rank_(world.rank()),
        ranks_(static_cast<std::size_t>(world.size())),
        input_(c.input(rank_, most)),
        all_(c.answer(world.size(), most)),
        up_to_here_(c.answer(rank_ + 1, most)),
        before_(rank_ == 0 ? bytes() : c.answer(rank_, most)) {}

  // `count`: of the result; for reduce_scatter_v, of an average rank's block. A list has three pieces.
  void begin(const communicator& world, flight<Memory>& f, kind k, algorithm with, std::size_t count,
             bool in_place, int root, bool as_list = false) const {
    f.what = {k, case_.name, with, count, root, in_place, rank_};
    std::size_t total = count;
    std::size_t first = 0;  // offset of the result in the vector
    std::size_t own = count;
    if (k == kind::reduce_scatter) {
      total = count * ranks_;
      first = count * static_cast<std::size_t>(rank_);
    } else if (k == kind::reduce_scatter_v) {
      // Some ranks get nothing, others twice the average.
      for (std::size_t r = 0; r < ranks_; ++r) f.counts.push_back((r + count) % 3 * count);
      total = 0;
      for (std::size_t r = 0; r < ranks_; ++r) {
        if (r == static_cast<std::size_t>(rank_)) first = total;
        total += f.counts[r];
      }
      own = f.counts[static_cast<std::size_t>(rank_)];
    }
    const auto input = part(input_, 0, total);
    f.in = field(input);
    if (!in_place) f.out = field(own * case_.element_bytes);
    f.with.kind = k;
    f.with.in = f.in.span();
    f.with.out =
        in_place ? f.in.span().subspan(first * case_.element_bytes, own * case_.element_bytes) : f.out.span();
    f.with.counts = f.counts;
    f.with.root = root;
    const auto as_before =
        in_place ? bytes(input.begin(), input.end()) : bytes(f.out.span().begin(), f.out.span().end());
    const auto answer = [&](const bytes& from) {
      const auto slice = part(from, first, own);
      return bytes(slice.begin(), slice.end());
    };
    switch (k) {
      case kind::reduce:
        f.wanted = rank_ == root ? answer(all_) : as_before;
        break;
      case kind::scan:
        f.wanted = answer(up_to_here_);
        break;
      case kind::exclusive_scan:
        f.wanted = rank_ > 0 ? answer(before_) : as_before;
        break;
      default:
        f.wanted = answer(all_);
    }
    if (as_list) {
      const std::size_t third = count / 3 * case_.element_bytes;
      f.with.pieces = {f.with.out.first(third), f.with.out.subspan(third, third),
                       f.with.out.subspan(third, 0), f.with.out.subspan(2 * third)};
    }
    f.there.emplace(*memory_, f.in, f.out);
    f.running = f.there->start(call_of(case_, world, f.with, *f.there), with);
  }

  task<> finish(flight<Memory>* flying) const {
    flight<Memory>& f = *flying;
    if (!f.running) co_return;  // this memory does not support it
    co_await f.running;
    co_await f.there->fetch();
    f.in.expect_margins(f.what);
    f.out.expect_margins(f.what);
    expect_equal(f.with.out, f.wanted, f.what);
    if (f.what.in_place) co_return;
    expect_equal(f.in.span(), std::span<const std::byte>(input_).first(f.in.span().size()), f.what);
  }

 private:
  std::span<const std::byte> part(const bytes& from, std::size_t first, std::size_t count) const {
    return std::span(from).subspan(first * case_.element_bytes, count * case_.element_bytes);
  }

  const one_case& case_;
  const Memory* memory_;
  int rank_;
  std::size_t ranks_;
  bytes input_;
  bytes all_;
  bytes up_to_here_;
  bytes before_;
};

// All calls of one case and size are in flight at once.
template <class Memory>
task<> every_type(communicator world, const setting* where, const Memory* memory) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::vector<one_case>& all = cases();
  for (std::size_t number = 0; number < all.size(); ++number) {
    if (!memory->takes(*where, number)) continue;
    const one_case& c = all[number];
    constexpr std::size_t counts[] = {1, 1103};
    const given_numbers<Memory> given(world, c, counts[1] * 2 * ranks, memory);
    for (const std::size_t count : counts) {
      std::deque<flight<Memory>> flights;
      for (const kind k : kinds) {
        const bool is_scan = k == kind::scan || k == kind::exclusive_scan;
        if (is_scan && !c.has_scans) continue;
        for (const algorithm a : memory->algorithms(*where, k, k != kind::reduce_scatter_v))
          for (const bool in_place : {false, true}) {
            const int root = k == kind::reduce ? (in_place ? world.size() / 2 : world.size() - 1) : 0;
            given.begin(world, flights.emplace_back(), k, a, count, in_place, root);
          }
      }
      given.begin(world, flights.emplace_back(), kind::all_reduce, algorithm::automatic, count, true, 0,
                  true);
      for (flight<Memory>& f : flights) co_await given.finish(&f);
    }
  }
}

inline std::vector<std::size_t> sizes_for(kind k, std::size_t ranks, std::size_t largest) {
  std::vector<std::size_t> counts = {0, 1, 2, 3, 7, 8, 61, 1001};
  add_around(counts, read_in_place_bytes, sizeof(float));
  add_around(counts, shm_eager_bytes, sizeof(float));
  const bool has_blocks = k == kind::reduce_scatter || k == kind::reduce_scatter_v;
  // Sizes at which algorithms send slices, and at the switch points of the table.
  add_around(counts, read_in_place_bytes * ranks / (has_blocks ? 2 : 1), sizeof(float));
  for (const std::size_t total : {16 * KiB, 32 * KiB, 64 * KiB, 128 * KiB})
    add_around(counts, has_blocks ? total / ranks : total, sizeof(float));
  if (has_blocks)
    add_around(counts, tcp_eager_bytes / ranks, sizeof(float));
  else
    counts.push_back(tcp_eager_bytes / sizeof(float) + 1);
  if (k == kind::all_reduce) add_around(counts, 1024 * KiB, sizeof(float));
  if (k == kind::all_reduce && ranks == 3) counts.push_back(largest / sizeof(float) + 1);
  tidy(counts);
  return counts;
}

// Short calls of one size are in flight at once, long ones one after the other.
template <class Memory>
task<> every_size(communicator world, const setting* where, const Memory* memory) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const one_case c = sum_of_floats();
  const given_numbers<Memory> given(world, c, std::max(Memory::largest, 2048 * KiB) / sizeof(float) + 16,
                                    memory);
  for (const kind k : kinds) {
    for (const std::size_t count : sizes_for(k, ranks, Memory::largest)) {
      const int root = static_cast<int>(count % ranks);
      std::deque<flight<Memory>> flights;
      for (const algorithm a : memory->algorithms(*where, k, k != kind::reduce_scatter_v)) {
        for (const bool in_place : {false, true}) {
          given.begin(world, flights.emplace_back(), k, a, count, in_place, root);
          if (count < 2000) continue;
          co_await given.finish(&flights.back());
          flights.pop_back();
        }
      }
      if (k == kind::all_reduce)
        given.begin(world, flights.emplace_back(), k, algorithm::automatic, count, true, root, true);
      for (flight<Memory>& f : flights) co_await given.finish(&f);
    }
  }
}

}  // namespace tutti::test::reductions
