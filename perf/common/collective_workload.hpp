// SPDX-License-Identifier: Apache-2.0
// The data of the collective commands; all_reduce's vector_sum is in workload.hpp. The time of the slowest
// rank counts.
#pragma once

#include "common/buffer.hpp"
#include "common/machine.hpp"
#include "common/pattern.hpp"
#include "common/series.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace perf {

class collective_workload {
 public:
  static constexpr int operations_per_round() noexcept { return 1; }
  static constexpr bool keeps_time() noexcept { return true; }
  std::int64_t faults() const noexcept { return faults_; }

 protected:
  void expect(bool right) noexcept { faults_ += right ? 0 : 1; }
  // A result is right; `sent` is what this rank sends next.
  void expect(bool right, std::span<std::byte> sent) noexcept {
    expect(right);
    if (rewrites_) rewrite(sent);
  }
  bool rewrites_ = false;

 private:
  std::int64_t faults_ = 0;
};

// broadcast: a round is one message of rank 0 to all.
class broadcast_message : public collective_workload {
 public:
  broadcast_message(std::size_t bytes, int rank, const memory_source& from = ordinary_memory)
      : data_(bytes, from), rank_(rank) {}

  std::span<std::byte> data() noexcept { return data_.all(); }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    seed_ = seed_of_message(batch_seed, 0, 0);
    if (rank_ == 0)
      fill(data_.all(), seed_);
    else
      scrub(data_.all());
    tail_ = tail_check(data_.all().size(), seed_);
  }
  void sample() noexcept {
    expect(tail_.holds(data_.all()), rank_ == 0 ? data_.all() : std::span<std::byte>());
  }
  void check() noexcept { expect(is_filled(data_.all(), seed_)); }

 private:
  buffer data_;
  int rank_;
  std::uint64_t seed_ = 0;
  tail_check tail_;
};

// all_gather: a round brings a block of every rank to every rank.
class gathered_blocks : public collective_workload {
 public:
  // `bytes`: of all blocks together.
  gathered_blocks(std::size_t bytes, int rank, int ranks, const memory_source& from = ordinary_memory)
      : block_(bytes / static_cast<std::size_t>(ranks)),
        in_(block_, from),
        out_(bytes, from),
        rank_(rank),
        ranks_(ranks) {}

  std::span<const std::byte> in() noexcept { return in_.all(); }
  std::span<std::byte> out() noexcept { return out_.all(); }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    batch_seed_ = batch_seed;
    fill(in_.all(), seed_of(rank_));
    scrub(out_.all());
    tail_ = tail_check(block_, seed_of(neighbour()));
  }
  void sample() noexcept { expect(tail_.holds(block(neighbour())), in_.all()); }
  void check() noexcept {
    for (int r = 0; r < ranks_; ++r) expect(is_filled(block(r), seed_of(r)));
  }

 private:
  int neighbour() const noexcept { return (rank_ + 1) % ranks_; }
  std::uint64_t seed_of(int rank) const noexcept { return seed_of_message(batch_seed_, rank, 0); }
  std::span<std::byte> block(int r) noexcept {
    return out_.part(block_ * static_cast<std::size_t>(r), block_);
  }

  std::size_t block_;
  buffer in_, out_;
  int rank_, ranks_;
  std::uint64_t batch_seed_ = 0;
  tail_check tail_;
};

// all_to_all: a round brings block j of rank i to block i of rank j.
class exchanged_blocks : public collective_workload {
 public:
  // `bytes`: of one rank's blocks together.
  exchanged_blocks(std::size_t bytes, int rank, int ranks, const memory_source& from = ordinary_memory)
      : block_(bytes / static_cast<std::size_t>(ranks)),
        in_(bytes, from),
        out_(bytes, from),
        rank_(rank),
        ranks_(ranks) {}

  std::span<const std::byte> in() noexcept { return in_.all(); }
  std::span<std::byte> out() noexcept { return out_.all(); }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    batch_seed_ = batch_seed;
    for (int r = 0; r < ranks_; ++r) fill(block(in_, r), seed_of_message(batch_seed_, rank_, r));
    scrub(out_.all());
    tail_ = tail_check(block_, seed_from(neighbour()));
  }
  void sample() noexcept { expect(tail_.holds(block(out_, neighbour())), in_.all()); }
  void check() noexcept {
    for (int r = 0; r < ranks_; ++r) expect(is_filled(block(out_, r), seed_from(r)));
  }

 private:
  int neighbour() const noexcept { return (rank_ + 1) % ranks_; }
  std::uint64_t seed_from(int sender) const noexcept { return seed_of_message(batch_seed_, sender, rank_); }
  std::span<std::byte> block(buffer& b, int r) const noexcept {
    return b.part(block_ * static_cast<std::size_t>(r), block_);
  }

  std::size_t block_;
  buffer in_, out_;
  int rank_, ranks_;
  std::uint64_t batch_seed_ = 0;
  tail_check tail_;
};

// reduce_scatter: a round gives each rank its block of the sum.
class scattered_sum : public collective_workload {
 public:
  // `bytes`: of the input vector of one rank.
  scattered_sum(std::size_t bytes, int rank, int ranks, const memory_source& from = ordinary_memory)
      : block_count_(bytes / sizeof(float) / static_cast<std::size_t>(ranks)),
        in_(bytes, from),
        out_(bytes / static_cast<std::size_t>(ranks), from),
        rank_(rank),
        ranks_(ranks) {}

  std::span<const float> in() noexcept { return floats(in_); }
  std::span<float> out() noexcept { return floats(out_); }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    seed_ = batch_seed;
    fill_addends(floats(in_), seed_, rank_);
    scrub(out_.all());
    last_ = expected_sum(first() + block_count_ - 1, seed_, ranks_);
  }
  void sample() noexcept { expect(out()[block_count_ - 1] == last_, in_.all()); }
  void check() noexcept {
    // The block is the part of the sum from first(): addends depend on index plus seed.
    expect(is_sum(out(), seed_ + first(), ranks_));
  }

 private:
  std::size_t first() const noexcept { return block_count_ * static_cast<std::size_t>(rank_); }
  static std::span<float> floats(buffer& b) noexcept {
    return {reinterpret_cast<float*>(b.all().data()), b.all().size() / sizeof(float)};
  }

  std::size_t block_count_;
  buffer in_, out_;
  int rank_, ranks_;
  std::uint64_t seed_ = 0;
  float last_ = 0;
};

// barrier: no rank may leave before all have entered. Checked in the last round of each batch, if all ranks
// share one host and therefore one clock.
class barrier_times : public collective_workload {
 public:
  void prepare(std::uint64_t, bool = false) noexcept { entered_ = left_ = 0; }
  void check() noexcept {}
  void enter() noexcept { entered_ = now(); }
  void leave() noexcept { left_ = now(); }

  void tell(maxima& own) const noexcept {
    own[max_entered] = entered_;
    own[max_minus_left] = -left_;
    own[max_host] = host_;
    own[max_minus_host] = -host_;
  }
  void judge(const maxima& all) noexcept {
    const bool one_host = all[max_host] == -all[max_minus_host];
    if (one_host) expect(all[max_entered] <= -all[max_minus_left]);
  }

 private:
  static double now() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  double entered_ = 0, left_ = 0;
  double host_ = host_mark();
};

}  // namespace perf
