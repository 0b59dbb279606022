// SPDX-License-Identifier: Apache-2.0
// all_reduce, reduce, reduce_scatter, reduce_scatter_v, scan and exclusive_scan against a serial answer:
// every element type, reduction and algorithm, in place and not, in every world.
#include "coll/conformance/reduction_cases.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>
#include <deque>

using namespace tutti;
using namespace tutti::test;

namespace {

using kind = coll::operation_kind;

constexpr kind kinds[] = {kind::all_reduce,       kind::reduce, kind::reduce_scatter,
                          kind::reduce_scatter_v, kind::scan,   kind::exclusive_scan};

// One collective under way, with its own buffers.
struct flight {
  attempt what;
  reduction_arguments with;
  std::vector<std::size_t> counts;
  field in;
  field out;  // empty in place
  bytes wanted;
  request running;
};

// The inputs and answers of one case, as long as the longest vector.
class numbers {
 public:
  numbers(const communicator& world, const reduction_case& c, std::size_t most)
      : case_(c),
        rank_(world.rank()),
        ranks_(static_cast<std::size_t>(world.size())),
        input_(c.input(rank_, most)),
        all_(c.answer(world.size(), most)),
        up_to_here_(c.answer(rank_ + 1, most)),
        before_(rank_ == 0 ? bytes() : c.answer(rank_, most)) {}

  // `count`: of the result; for reduce_scatter_v of an average rank's. A list: in three pieces.
  void begin(const communicator& world, flight& f, kind k, algorithm with, std::size_t count, bool in_place,
             int root, bool as_list = false) const {
    f.what = {k, case_.name, with, count, root, in_place, rank_};
    std::size_t total = count;
    std::size_t first = 0;  // of the result, in the vector
    std::size_t own = count;
    if (k == kind::reduce_scatter) {
      total = count * ranks_;
      first = count * static_cast<std::size_t>(rank_);
    } else if (k == kind::reduce_scatter_v) {
      // Nothing for some, twice the average for others.
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
    f.running = start(case_.call(world, f.with).with(with));
  }

  void check(const flight& f) const {
    f.in.expect_margins(f.what);
    f.out.expect_margins(f.what);
    expect_equal(f.with.out, f.wanted, f.what);
    if (f.what.in_place) return;
    expect_equal(f.in.span(), std::span<const std::byte>(input_).first(f.in.span().size()), f.what);
  }

 private:
  std::span<const std::byte> part(const bytes& from, std::size_t first, std::size_t count) const {
    return std::span(from).subspan(first * case_.element_bytes, count * case_.element_bytes);
  }

  const reduction_case& case_;
  int rank_;
  std::size_t ranks_;
  bytes input_;
  bytes all_;
  bytes up_to_here_;
  bytes before_;
};

// What reduces elements does not know how many ranks there are: worlds of four and more share the cases among
// them, so that each number of ranks, and each transport, meets all of them.
bool takes(const setting& where, std::size_t number) {
  if (instrumented || where.ranks < 4) return true;  // there are few worlds, or they are small
  const int by_ranks = where.ranks == 4 ? 0 : where.ranks == 5 ? 1 : 2;
  const int by_transport = where.transport == "shm" ? 0 : where.transport == "tcp" ? 1 : 2;
  return static_cast<int>(number % 3) == (by_ranks + by_transport) % 3;
}

// All of one case and size are in flight at once.
task<> every_type(communicator world, const setting* where) {
  const auto ranks = static_cast<std::size_t>(world.size());
  for (std::size_t number = 0; number < reduction_cases().size(); ++number) {
    if (!takes(*where, number)) continue;
    const reduction_case& c = reduction_cases()[number];
    constexpr std::size_t counts[] = {1, 1103};
    const numbers given(world, c, counts[1] * 2 * ranks);
    for (const std::size_t count : counts) {
      std::deque<flight> flights;
      for (const kind k : kinds) {
        const bool is_scan = k == kind::scan || k == kind::exclusive_scan;
        if (is_scan && !c.has_scans) continue;
        for (const algorithm a : where->algorithms(k, k != kind::reduce_scatter_v))
          for (const bool in_place : {false, true}) {
            const int root = k == kind::reduce ? (in_place ? world.size() / 2 : world.size() - 1) : 0;
            given.begin(world, flights.emplace_back(), k, a, count, in_place, root);
          }
      }
      given.begin(world, flights.emplace_back(), kind::all_reduce, algorithm::automatic, count, true, 0,
                  true);
      for (flight& f : flights) {
        co_await f.running;
        given.check(f);
      }
    }
  }
}

std::vector<std::size_t> sizes_for(kind k, std::size_t ranks) {
  std::vector<std::size_t> counts = {0, 1, 2, 3, 7, 8, 61, 1001};
  add_around(counts, shm_eager_bytes, sizeof(float));
  add_around(counts, tcp_eager_bytes, sizeof(float));
  const bool has_blocks = k == kind::reduce_scatter || k == kind::reduce_scatter_v;
  // Where an algorithm sends slices, and where the table changes its mind.
  add_around(counts, shm_eager_bytes * ranks / (has_blocks ? 2 : 1), sizeof(float));
  for (const std::size_t total : {32 * KiB, 64 * KiB})
    add_around(counts, has_blocks ? total / ranks : total, sizeof(float));
  if (has_blocks) add_around(counts, 256 * KiB / ranks, sizeof(float));
  if (k == kind::all_reduce) add_around(counts, 1024 * KiB, sizeof(float));
  if (k == kind::all_reduce && ranks == 3) counts.push_back(large_bytes / sizeof(float) + 1);
  tidy(counts);
  return counts;
}

// Small ones of a size are in flight at once, large ones one after the other.
task<> every_size(communicator world, const setting* where) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const numbers given(world, sum_of_floats(), (ranks == 3 ? large_bytes : 2048 * KiB) / sizeof(float) + 16);
  for (const kind k : kinds) {
    for (const std::size_t count : sizes_for(k, ranks)) {
      const int root = static_cast<int>(count % ranks);
      std::deque<flight> flights;
      for (const algorithm a : where->algorithms(k, k != kind::reduce_scatter_v)) {
        for (const bool in_place : {false, true}) {
          given.begin(world, flights.emplace_back(), k, a, count, in_place, root);
          if (count < 2000) continue;
          co_await flights.back().running;
          given.check(flights.back());
          flights.pop_back();
        }
      }
      if (k == kind::all_reduce)
        given.begin(world, flights.emplace_back(), k, algorithm::automatic, count, true, root, true);
      for (flight& f : flights) {
        co_await f.running;
        given.check(f);
      }
    }
  }
}

}  // namespace

TEST_CASE("reductions: every element type, reduction and algorithm, all of a size in flight at once") {
  run_in_all(every_type);
}
TEST_CASE("reductions: every size around a threshold, by every algorithm") { run_in_all(every_size); }
