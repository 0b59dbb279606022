// SPDX-License-Identifier: Apache-2.0
// broadcast, scatter, gather, all_gather, all_to_all and their uneven forms against a serial result: every
// element type, root and algorithm, in place and not; and barrier. `Memory`: where the buffers are.
#pragma once

#include "coll/conformance/movement_cases.hpp"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::test::movement {

inline constexpr kind even_kinds[] = {kind::broadcast, kind::scatter, kind::gather, kind::all_gather,
                                      kind::all_to_all};
inline constexpr kind uneven_kinds[] = {kind::scatter_v, kind::gather_v, kind::all_gather_v,
                                        kind::all_to_all_v};

inline bool has_root(kind k) {
  return k == kind::broadcast || k == kind::scatter || k == kind::gather || k == kind::scatter_v ||
         k == kind::gather_v;
}

// The block of rank `from` for rank `to`; different bytes for each call.
inline std::span<const std::byte> block_of(std::size_t call, std::size_t from, std::size_t to,
                                           std::size_t size) {
  constexpr std::size_t step = 64;
  constexpr std::size_t most = large_bytes + 64;
  static const bytes all = filled(most + 8192 * step, 20'26);
  return std::span(all).subspan((call * 131 + from * 17 + to) % 8192 * step, size);
}

template <class Memory>
struct flight {
  attempt what;
  arguments with;
  std::vector<std::size_t> in_counts;
  std::vector<std::size_t> out_counts;
  field in;
  field out;  // empty in place
  bytes wanted;
  bytes given;  // contents of `in` before the call
  std::optional<typename Memory::buffers> there;
  request running;
};

// The number of elements from rank `from` to rank `to`.
using lengths = std::size_t (*)(std::size_t from, std::size_t to, std::size_t count, std::size_t ranks);

inline std::size_t even(std::size_t, std::size_t, std::size_t count, std::size_t) { return count; }
inline std::size_t uneven(std::size_t from, std::size_t to, std::size_t count, std::size_t) {
  return (from + 2 * to + count) % 3 * count;
}
inline std::size_t all_at_one(std::size_t from, std::size_t to, std::size_t count, std::size_t ranks) {
  return from == ranks / 2 || to + 1 == ranks ? count * 2 + 1 : 0;
}

template <class Memory>
class mover {
 public:
  using one = one_case<typename Memory::buffers>;
  mover(const communicator& world, const one& c, const Memory* memory)
      : case_(c),
        memory_(memory),
        rank_(static_cast<std::size_t>(world.rank())),
        ranks_(static_cast<std::size_t>(world.size())) {}

  void begin(const communicator& world, flight<Memory>& f, kind k, algorithm with, std::size_t count,
             lengths length, bool in_place, int root) {
    f.what = {k, case_.name, with, count, root, in_place, world.rank()};
    const std::size_t call = calls_++;
    const auto r = static_cast<std::size_t>(root);
    const bool is_root = rank_ == r;
    bytes in;
    bytes out;
    std::size_t own_in = 0;   // offset of the own block in `in`, and its length, in elements
    std::size_t own_out = 0;  // likewise in `out`
    std::size_t own_count = length(rank_, rank_, count, ranks_);
    const auto append = [&](bytes& to, std::size_t from_rank, std::size_t to_rank, std::size_t elements) {
      const auto block = block_of(call, from_rank, to_rank, elements * case_.element_bytes);
      to.insert(to.end(), block.begin(), block.end());
    };
    switch (k) {
      case kind::broadcast:
        append(in, r, r, count);
        break;
      case kind::scatter:
      case kind::scatter_v:
        for (std::size_t to = 0; to < ranks_; ++to) {
          f.in_counts.push_back(length(r, to, count, ranks_));
          if (to < rank_) own_in += f.in_counts.back();
          if (is_root) append(in, r, to, f.in_counts.back());
        }
        own_count = f.in_counts[rank_];
        append(out, r, rank_, own_count);
        if (!is_root) f.in_counts.clear();
        break;
      case kind::gather:
      case kind::gather_v:
      case kind::all_gather:
      case kind::all_gather_v: {
        const bool rooted = k == kind::gather || k == kind::gather_v;
        // The length depends only on the sender.
        for (std::size_t from = 0; from < ranks_; ++from) {
          f.out_counts.push_back(length(from, r, count, ranks_));
          if (from < rank_) own_out += f.out_counts.back();
          if (is_root || !rooted) append(out, from, r, f.out_counts.back());
        }
        own_count = f.out_counts[rank_];
        append(in, rank_, r, own_count);
        if (rooted && !is_root) f.out_counts.clear();
        break;
      }
      default:
        for (std::size_t other = 0; other < ranks_; ++other) {
          f.in_counts.push_back(length(rank_, other, count, ranks_));
          f.out_counts.push_back(length(other, rank_, count, ranks_));
          append(in, rank_, other, f.in_counts.back());
          append(out, other, rank_, f.out_counts.back());
        }
    }
    const std::size_t own_bytes = own_count * case_.element_bytes;
    f.with.kind = k;
    f.with.root = root;
    f.wanted = out;
    f.given = in;
    if (k == kind::broadcast) {
      f.wanted = in;
      f.out = field(in.size());
      if (is_root) f.out = field(std::span<const std::byte>(in));
      f.with.out = f.out.span();
    } else if (!in_place) {
      f.in = field(std::span<const std::byte>(in));
      f.out = field(out.size());
      f.with.in = f.in.span();
      f.with.out = f.out.span();
    } else if (k == kind::scatter || k == kind::scatter_v) {  // the root's result is its block of the input
      f.in = field(std::span<const std::byte>(in));
      f.with.in = f.in.span();
      f.out = field(is_root ? 0 : own_bytes);
      f.with.out = is_root ? f.in.span().subspan(own_in * case_.element_bytes, own_bytes) : f.out.span();
    } else if (k == kind::all_to_all) {
      f.out = field(std::span<const std::byte>(in));
      f.with.in = f.with.out = f.out.span();
    } else {  // the input is the own block of the result
      f.out = field(out.size());
      f.with.out = f.out.span();
      const bool inside = k == kind::all_gather || k == kind::all_gather_v || is_root;
      if (inside) {
        f.with.in = f.out.span().subspan(own_out * case_.element_bytes, own_bytes);
        if (!in.empty()) std::memcpy(f.with.in.data(), in.data(), in.size());
        f.given.clear();
      } else {
        f.in = field(std::span<const std::byte>(in));
        f.with.in = f.in.span();
      }
    }
    f.with.in_counts = f.in_counts;
    f.with.out_counts = f.out_counts;
    f.there.emplace(*memory_, f.in, f.out);
    f.running = f.there->start(case_.call(world, f.with, *f.there), with);
  }

  task<> finish(flight<Memory>* flying) const {
    flight<Memory>& f = *flying;
    if (!f.running) co_return;  // this memory does not support it
    co_await f.running;
    co_await f.there->fetch();
    f.in.expect_margins(f.what);
    f.out.expect_margins(f.what);
    expect_equal(f.with.out, f.wanted, f.what);
    if (f.in.span().size() > 0) expect_equal(f.in.span(), f.given, f.what);  // the input is unchanged
  }

 private:
  const one& case_;
  const Memory* memory_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t calls_ = 0;
};

// all_to_all_v has no form in place.
inline std::vector<bool> forms_of(kind k) {
  if (k == kind::broadcast || k == kind::all_to_all_v) return {false};
  return {false, true};
}

template <class Memory>
task<> land(std::deque<flight<Memory>>* flights, const mover<Memory>* given) {
  for (flight<Memory>& f : *flights) co_await given->finish(&f);
  flights->clear();
}

// All calls of one type and size are in flight at once.
template <class Memory>
task<> every_type(communicator world, const setting* where, const Memory* memory) {
  for (const auto& c : cases<typename Memory::buffers>()) {
    mover<Memory> given(world, c, memory);
    for (const std::size_t count : {std::size_t{1}, std::size_t{61}, std::size_t{700}}) {
      std::deque<flight<Memory>> flights;
      for (const kind k : even_kinds)
        for (const algorithm a : memory->algorithms(*where, k))
          for (const bool in_place : forms_of(k))
            given.begin(world, flights.emplace_back(), k, a, count, even, in_place,
                        has_root(k) ? world.size() / 2 : 0);
      for (const kind k : uneven_kinds)
        for (const algorithm a : memory->algorithms(*where, k, false))
          for (const bool in_place : forms_of(k))
            given.begin(world, flights.emplace_back(), k, a, count, uneven, in_place,
                        has_root(k) ? world.size() - 1 : 0);
      co_await land(&flights, &given);
    }
  }
}

inline std::vector<std::size_t> sizes_for(kind k, std::size_t ranks, std::size_t largest) {
  std::vector<std::size_t> counts = {0, 1, 2, 3, 7, 61, 1001};
  add_around(counts, read_in_place_bytes, sizeof(float));
  add_around(counts, shm_eager_bytes, sizeof(float));
  if (k == kind::broadcast) {  // in slices, and around the switch points of the table
    add_around(counts, read_in_place_bytes * ranks, sizeof(float));
    add_around(counts, shm_eager_bytes * ranks, sizeof(float));
    for (const std::size_t total : {32 * KiB, tcp_eager_bytes, 512 * KiB})
      add_around(counts, total, sizeof(float));
    counts.push_back((ranks == 3 ? largest : 1024 * KiB) / sizeof(float) + 1);
  } else {
    for (const std::size_t total : {4 * KiB, 32 * KiB, 80 * KiB, 128 * KiB})
      add_around(counts, total / ranks, sizeof(float));
    if (k == kind::all_gather) add_around(counts, 128 * KiB, sizeof(float));
  }
  tidy(counts);
  return counts;
}

// Short calls of one size are in flight at once, from every root; long ones one after the other.
template <class Memory>
task<> every_size_and_root(communicator world, const setting* where, const Memory* memory) {
  mover<Memory> given(world, cases<typename Memory::buffers>().front(), memory);
  for (const kind k : even_kinds) {
    for (const std::size_t count : sizes_for(k, static_cast<std::size_t>(world.size()), Memory::largest)) {
      const bool small = count < 2000;
      const int first = has_root(k) && !small ? static_cast<int>(count) % world.size() : 0;
      const int last = has_root(k) && small ? world.size() : first + 1;
      std::deque<flight<Memory>> flights;
      for (const algorithm a : memory->algorithms(*where, k)) {
        for (const bool in_place : forms_of(k)) {
          for (int root = first; root < last; ++root)
            given.begin(world, flights.emplace_back(), k, a, count, even, in_place, root);
          if (!small) co_await land(&flights, &given);
        }
      }
      co_await land(&flights, &given);
    }
  }
}

template <class Memory>
task<> every_shape(communicator world, const setting* where, const Memory* memory) {
  mover<Memory> given(world, cases<typename Memory::buffers>().front(), memory);
  constexpr lengths shapes[] = {even, uneven, all_at_one};
  for (const kind k : uneven_kinds) {
    for (const std::size_t count : sizes_for(k, static_cast<std::size_t>(world.size()), Memory::largest)) {
      const int root = has_root(k) ? static_cast<int>(count) % world.size() : 0;
      std::deque<flight<Memory>> flights;
      for (const lengths shape : shapes) {
        for (const algorithm a : memory->algorithms(*where, k, false)) {
          for (const bool in_place : forms_of(k)) {
            given.begin(world, flights.emplace_back(), k, a, count, shape, in_place, root);
            if (count >= 2000) co_await land(&flights, &given);
          }
        }
      }
      co_await land(&flights, &given);
    }
  }
}

// Ranks are threads here, so that each sees the progress of the others without a message.
template <class Memory>
task<> nobody_leaves_early(communicator world, const setting* where, const Memory* memory,
                           std::atomic<int>* arrived) {
  field none;
  const typename Memory::buffers at(*memory, none, none);
  int round = 0;
  for (const algorithm a : memory->algorithms(*where, kind::barrier)) {
    for (int i = 0; i < 50; ++i) {
      arrived->fetch_add(1, std::memory_order_relaxed);
      request passing = at.start(at.call([&world](const auto&... s) { return world.barrier(s...); }), a);
      co_await passing;
      TUTTI_EXPECT(arrived->load(std::memory_order_relaxed) >= ++round * world.size());
    }
  }
}

}  // namespace tutti::test::movement
