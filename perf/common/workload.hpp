// SPDX-License-Identifier: Apache-2.0
// The buffers of each command, filled anew for every batch and checked after it. Each program communicates by
// itself. The checks named `sample` are inside the timed part, identically in every program, and so is the rewriting
// of what this rank sends next, where prepare() was told to.
#pragma once

#include "common/buffer.hpp"
#include "common/pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace perf {

// latency: a round is one message in each direction between two ranks, from buffers of their own. Ranks 0 and
// 1 are a pair, 2 and 3 the next.
class message_pair {
 public:
  message_pair(std::size_t bytes, int rank, const memory_source& from = ordinary_memory)
      : out_(bytes, from), in_(bytes, from), rank_(rank) {}

  static constexpr int operations_per_round() noexcept { return 2; }
  bool begins() const noexcept { return rank_ % 2 == 0; }
  bool keeps_time() const noexcept { return begins(); }
  int peer() const noexcept { return rank_ ^ 1; }

  std::span<const std::byte> out() noexcept { return out_.all(); }
  std::span<std::byte> in() noexcept { return in_.all(); }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    expected_seed_ = seed_of_message(batch_seed, peer(), 0);
    fill(out_.all(), seed_of_message(batch_seed, rank_, 0));
    scrub(in_.all());
    tail_ = tail_check(in_.all().size(), expected_seed_);
  }
  void sample() noexcept {
    faults_ += tail_.holds(in_.all()) ? 0 : 1;
    if (rewrites_) rewrite(out_.all());
  }
  void check() noexcept { faults_ += is_filled(in_.all(), expected_seed_) ? 0 : 1; }
  std::int64_t faults() const noexcept { return faults_; }

 private:
  buffer out_, in_;
  int rank_;
  bool rewrites_ = false;
  std::uint64_t expected_seed_ = 0;
  tail_check tail_;
  std::int64_t faults_ = 0;
};

// put_signal: the same messages, put into windows.
class put_pair : public message_pair {
 public:
  using message_pair::message_pair;
};

// fetch_add: a round is one addition by rank 0.
class remote_count {
 public:
  explicit remote_count(int rank) noexcept : rank_(rank) {}

  static constexpr int operations_per_round() noexcept { return 1; }
  bool begins() const noexcept { return rank_ == 0; }
  bool keeps_time() const noexcept { return begins(); }

  void prepare(std::uint64_t, bool = false) noexcept {}
  void sample(std::uint64_t before) noexcept { faults_ += before == counted_++ ? 0 : 1; }
  void check() noexcept {}
  std::int64_t faults() const noexcept { return faults_; }

 private:
  int rank_;
  std::uint64_t counted_ = 0;
  std::int64_t faults_ = 0;
};

// bandwidth: a round is a window of messages from rank 0 to rank 1, and one number back that acknowledges the
// window. Each message has its own buffer on both sides.
class message_window {
 public:
  message_window(std::size_t bytes, int slots, int rank, const memory_source& from = ordinary_memory)
      : bytes_(bytes),
        stride_((bytes / 64 + 1) * 64),
        slots_(slots),
        rank_(rank),
        memory_(stride_ * static_cast<std::size_t>(slots), from),
        tails_(static_cast<std::size_t>(slots)) {}

  int operations_per_round() const noexcept { return slots_; }
  bool keeps_time() const noexcept { return rank_ == 0; }

  int slots() const noexcept { return slots_; }
  std::span<std::byte> slot(int i) noexcept {
    return memory_.part(stride_ * static_cast<std::size_t>(i), bytes_);
  }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    batch_seed_ = batch_seed;
    for (int i = 0; i < slots_; ++i) {
      if (rank_ == 0)
        fill(slot(i), seed_of(i));
      else
        scrub(slot(i));
      tails_[static_cast<std::size_t>(i)] = tail_check(bytes_, seed_of(i));
    }
  }
  void sample() noexcept {
    for (int i = 0; i < slots_; ++i) faults_ += tails_[static_cast<std::size_t>(i)].holds(slot(i)) ? 0 : 1;
  }
  void sample_answer(std::int64_t window, std::int64_t expected) noexcept {
    faults_ += window == expected ? 0 : 1;
    if (rewrites_)
      for (int i = 0; i < slots_; ++i) rewrite(slot(i));
  }
  void check() noexcept {
    for (int i = 0; i < slots_; ++i) faults_ += is_filled(slot(i), seed_of(i)) ? 0 : 1;
  }
  std::int64_t faults() const noexcept { return faults_; }

 private:
  std::uint64_t seed_of(int i) const noexcept { return seed_of_message(batch_seed_, 0, i); }

  std::size_t bytes_, stride_;
  int slots_, rank_;
  bool rewrites_ = false;
  buffer memory_;
  std::vector<tail_check> tails_;
  std::uint64_t batch_seed_ = 0;
  std::int64_t faults_ = 0;
};

// all_reduce: a round is one sum of floats, out of place or in place.
class vector_sum {
 public:
  vector_sum(std::size_t bytes, int rank, int ranks, const memory_source& from = ordinary_memory,
             bool in_place = false)
      : in_(bytes, from),
        out_(bytes, from),
        count_(bytes / sizeof(float)),
        rank_(rank),
        ranks_(ranks),
        in_place_(in_place) {}

  static constexpr int operations_per_round() noexcept { return 1; }
  static constexpr bool keeps_time() noexcept { return true; }  // the slowest rank counts

  bool in_place() const noexcept { return in_place_; }
  std::span<const float> in() noexcept { return floats(in_place_ ? out_ : in_); }
  std::span<float> out() noexcept { return floats(out_); }
  // Before every operation.
  void load() noexcept {
    if (in_place_) std::memcpy(out_.all().data(), in_.all().data(), in_.all().size());
  }

  void prepare(std::uint64_t batch_seed, bool rewrites = false) noexcept {
    rewrites_ = rewrites;
    seed_ = batch_seed;
    fill_addends(floats(in_), seed_, rank_);
    scrub(out_.all());
    last_ = expected_sum(count_ - 1, seed_, ranks_);
  }
  void sample() noexcept {
    faults_ += out()[count_ - 1] == last_ ? 0 : 1;
    if (rewrites_) rewrite(in_.all());
  }
  void check() noexcept { faults_ += is_sum(out(), seed_, ranks_) ? 0 : 1; }
  std::int64_t faults() const noexcept { return faults_; }

 private:
  std::span<float> floats(buffer& b) const noexcept {
    return {reinterpret_cast<float*>(b.all().data()), count_};
  }

  buffer in_, out_;
  std::size_t count_;
  int rank_, ranks_;
  bool in_place_;
  bool rewrites_ = false;
  std::uint64_t seed_ = 0;
  float last_ = 0;
  std::int64_t faults_ = 0;
};

}  // namespace perf
