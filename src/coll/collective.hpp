// SPDX-License-Identifier: Apache-2.0
// collective: what an algorithm works with: some ranks of a communicator, one place in its order of
// collectives, and transfers. blocks: the positions of all ranks' blocks in one buffer.
//
// An algorithm is a coroutine on these transfers. Its frame is recycled and its temporary memory is lent by
// the communicator, so nothing is allocated in steady state. Destroying the frame takes every transfer back.
#pragma once

#include "comm/communicator_state.hpp"
#include "p2p/endpoint.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <tutti/task.hpp>
#include <type_traits>

namespace tutti::coll {

inline void move_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

// In rank order without gaps.
class blocks {
 public:
  // Blocks of `each` bytes.
  static blocks even(std::size_t each) noexcept {
    blocks b;
    b.each_ = each;
    return b;
  }
  // ends[i] is the end of block i in bytes. The array outlives this and its copies.
  static blocks uneven(const std::size_t* ends) noexcept {
    blocks b;
    b.ends_ = ends;
    return b;
  }
  // `count` elements in `parts` blocks of almost equal size: the first ones are one element longer.
  static blocks split(std::size_t count, int parts, std::size_t element_bytes) noexcept {
    blocks b;
    b.each_ = count / static_cast<std::size_t>(parts) * element_bytes;
    b.longer_ = count % static_cast<std::size_t>(parts);
    b.element_bytes_ = element_bytes;
    return b;
  }

  std::size_t begin(int i) const noexcept {
    const auto n = static_cast<std::size_t>(i);
    if (ends_ != nullptr) return i == 0 ? 0 : ends_[n - 1];
    return n * each_ + (n < longer_ ? n : longer_) * element_bytes_;
  }
  std::size_t bytes(int i) const noexcept { return begin(i + 1) - begin(i); }
  // Block i of the buffer that begins at `data`.
  template <class Byte>
  std::span<Byte> of(Byte* data, int i) const noexcept {
    return {data + begin(i), bytes(i)};
  }
  // The bytes of blocks first to last - 1.
  std::size_t bytes(int first, int last) const noexcept { return begin(last) - begin(first); }
  // The size of the longest of `n` blocks.
  std::size_t longest(int n) const noexcept {
    std::size_t most = 0;
    for (int i = 0; i < n; ++i) most = bytes(i) > most ? bytes(i) : most;
    return most;
  }

 private:
  std::size_t each_ = 0;
  std::size_t longer_ = 0;
  std::size_t element_bytes_ = 0;
  const std::size_t* ends_ = nullptr;
};

class collective {
 public:
  collective(comm::communicator_state& c, std::uint32_t sequence, const p2p::fingerprint& print) noexcept
      : comm_(&c),
        segment_(c.segments() != nullptr ? c.segments()->flat() : nullptr),
        sequence_(sequence),
        print_(print),
        rank_(c.rank()),
        size_(c.size()),
        givers_(size_) {}

  // The same collective among some of the ranks. `members` are ranks of the communicator and outlive the
  // algorithm; `rank` is this rank's place among them.
  collective among(std::span<const int> members, int rank) const noexcept {
    collective part = *this;
    part.members_ = members.data();
    part.rank_ = rank;
    part.size_ = part.givers_ = static_cast<int>(members.size());
    return part;
  }
  // Where ranks share memory in two levels: the same collective among the ranks of this rank's group, or of its
  // column, which reduces only what one rank of each group gives.
  collective near() const noexcept { return on(comm_->segments()->near()); }
  collective across() const noexcept {
    collective part = on(comm_->segments()->across());
    part.givers_ = comm_->segments()->groups()->groups();
    return part;
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // In reductions on a segment, ranks from this number on have nothing to give.
  int givers() const noexcept { return givers_; }
  // How the ranks are divided if they share memory in two levels; null: they have one segment.
  const comm::grouping* groups() const noexcept {
    return segment_ == nullptr ? comm_->segments()->groups() : nullptr;
  }
  // The rank `n` ahead of this one in a ring, or behind it: -size <= n <= size.
  int ahead(int n) const noexcept { return (rank_ + n + size_) % size_; }
  comm::scratch_pool& scratch() const noexcept { return comm_->scratch(); }
  const comm::communicator_state& comm() const noexcept { return *comm_; }
  comm::collective_segment& segment() const noexcept { return *segment_; }
  std::uint32_t sequence() const noexcept { return sequence_; }
  const p2p::fingerprint& print() const noexcept { return print_; }

  int rank_in_world(int rank) const noexcept {
    return comm_->group().world_rank(members_ == nullptr ? rank : members_[rank]);
  }

  // Transfers of one collective between the same two ranks match in the order in which they start.
  p2p::sending send(int rank, const void* data, std::size_t bytes) const noexcept {
    return p2p::sending(comm_->endpoint(), comm_->numbers().collectives(), rank_in_world(rank),
                        static_cast<int>(sequence_), data, bytes, print_);
  }
  p2p::receiving receive(int rank, void* data, std::size_t bytes) const noexcept {
    return p2p::receiving(comm_->endpoint(), comm_->numbers().collectives(), rank_in_world(rank),
                          static_cast<int>(sequence_), data, bytes, print_);
  }

 private:
  collective on(comm::host_segments::level& l) const noexcept {
    collective part = among(l.ranks, l.own);
    part.segment_ = &l.segment;
    return part;
  }

  comm::communicator_state* comm_;
  comm::collective_segment* segment_;  // null: none, or two levels
  std::uint32_t sequence_;
  p2p::fingerprint print_;
  const int* members_ = nullptr;  // null: all ranks
  int rank_;
  int size_;
  int givers_;
};

// Constructs a transfer in place: transfers do not move. std::optional::emplace() takes this, and its
// conversion calls make().
template <class Make>
struct made_in_place {
  const Make& make;
  operator std::invoke_result_t<const Make&>() const { return make(); }
};

// A few transfers at a time: enough to keep links busy, few enough to bound a rank's memory. Use:
//   for each transfer { co_await window.make_room(); window.start([&] { return c.send(...); }); }
//   co_await window.drain();
template <class Transfer, std::size_t Most>
class in_flight {
 public:
  // Waits for the oldest transfer if all places are taken.
  task<> make_room() {
    if (places_[next_]) {
      co_await oldest();
      drop_oldest();
    }
  }
  template <class Make>
  void start(const Make& make) {
    places_[next_].emplace(made_in_place<Make>{make});
    next_ = (next_ + 1) % Most;
  }
  task<> drain() {
    while (places_[oldest_]) {
      co_await oldest();
      drop_oldest();
    }
  }
  // The first transfer of those that are left: to be awaited, and then dropped.
  Transfer& oldest() noexcept { return *places_[oldest_]; }
  void drop_oldest() noexcept {
    places_[oldest_].reset();
    oldest_ = (oldest_ + 1) % Most;
  }

 private:
  std::array<std::optional<Transfer>, Most> places_;
  std::size_t next_ = 0;
  std::size_t oldest_ = 0;
};

}  // namespace tutti::coll
