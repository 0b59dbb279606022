// SPDX-License-Identifier: Apache-2.0
// memory-perf: the limit of shared memory for tutti and its rivals. All ranks map all buffers. A rank
// announces its buffer by one cache line, and its peers copy or add directly from it. No library that moves
// bytes can be faster, and none does as little.
//   memory-perf latency
//   memory-perf all_reduce --ranks 4
#include "common/forked_program.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <type_traits>

namespace {

using perf::command;

const perf::program_names names{
    "memory-perf",
    "",
    false,
    {command::latency, command::bandwidth, command::message_rate, command::all_reduce, command::all_gather,
     command::reduce_scatter, command::broadcast, command::all_to_all, command::barrier}};

// Progress of one rank, and a message short enough for the same line. Only that rank writes it.
struct alignas(64) flag {
  std::atomic<std::uint64_t> value{0};
  std::byte message[48];
};

// Mapped before the fork: the flags, then a part for each rank's buffers. Ranks allocate identically, so that
// a peer's buffer has the same offset in its part.
struct shared_mapping {
  std::byte* begin = nullptr;
  std::size_t bytes_per_rank = 0;
  flag* flags = nullptr;  // two for each rank: it has entered an operation; it has finished its part
};

shared_mapping make_mapping(const perf::options& chosen) {
  const std::size_t largest = *std::max_element(chosen.sizes.begin(), chosen.sizes.end());
  shared_mapping r;
  // Two buffers of the largest size, or a window, and padding.
  r.bytes_per_rank =
      std::max(2 * largest, (largest + 64) * static_cast<std::size_t>(perf::window_for(chosen, largest))) +
      (std::size_t{16} << 20);
  const auto ranks = static_cast<std::size_t>(chosen.ranks);
  const std::size_t flag_bytes = 2 * ranks * sizeof(flag);
  void* const memory = ::mmap(nullptr, flag_bytes + perf::page_bytes + ranks * r.bytes_per_rank,
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  r.flags = new (memory) flag[2 * ranks];
  r.begin = static_cast<std::byte*>(memory) + (flag_bytes / perf::page_bytes + 1) * perf::page_bytes;
  return r;
}

// This rank's part, allocated from its beginning. Buffers of one size are freed before those of the next are
// allocated.
struct part {
  std::byte* begin = nullptr;
  std::size_t bytes = 0, used = 0;
  int buffers = 0;
} own_part;

constexpr perf::memory_source mapping_memory{[](std::size_t bytes) {
                                               if (own_part.used + bytes > own_part.bytes)
                                                 throw std::bad_alloc();
                                               std::byte* const memory = own_part.begin + own_part.used;
                                               own_part.used += bytes;
                                               ++own_part.buffers;
                                               return memory;
                                             },
                                             [](std::byte*, std::size_t) noexcept {
                                               if (--own_part.buffers == 0) own_part.used = 0;
                                             }};

// Sums of 4 KiB stay in the first-level cache until they are written for all ranks.
constexpr std::size_t piece = 1024;

void sum_piece(float* sums, const float* const* from, std::size_t ranks, std::size_t first,
               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] = from[0][first + i] + from[1][first + i];
  for (std::size_t r = 2; r < ranks; ++r)
    for (std::size_t i = 0; i < count; ++i) sums[i] += from[r][first + i];
}

class memory_world : public perf::forked_world {
 public:
  memory_world(const perf::forked_world& control, const perf::options&, const shared_mapping& r)
      : forked_world(control), mapping_(r) {
    own_part.begin = at(rank());
    own_part.bytes = r.bytes_per_rank;
  }

  static std::string library() { return "memcpy and cache lines"; }
  static std::string transport() { return "shm"; }

  void run_rounds(perf::message_pair* data, std::int64_t rounds) {
    const int peer = data->peer();
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (data->begins()) put(data->out());
      take(data->in(), data->out(), peer);
      data->sample();
      if (!data->begins()) put(data->out());
    }
  }

  void run_rounds(perf::message_window* data, std::int64_t rounds) {
    const int peer = 1 - rank();
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (rank() == 0) {
        enter();
        wait_entered(peer);  // the peer has copied the whole window
        continue;
      }
      wait_entered(peer, 1);
      for (int i = 0; i < data->slots(); ++i)
        std::memcpy(data->slot(i).data(), of(peer, data->slot(i).data()), data->slot(i).size());
      data->sample();
      enter();
    }
  }

  void run_rounds(perf::vector_sum* data, std::int64_t rounds) {
    const std::size_t ranks = static_cast<std::size_t>(size()), count = data->in().size();
    const std::size_t first = count * static_cast<std::size_t>(rank()) / ranks;
    const std::size_t end = count * static_cast<std::size_t>(rank() + 1) / ranks;
    std::array<const float*, most_ranks> in;
    std::array<float*, most_ranks> out;
    for (int r = 0; r < size(); ++r) {
      in[static_cast<std::size_t>(r)] = of(r, data->in().data());
      out[static_cast<std::size_t>(r)] = of(r, data->out().data());
    }
    for (std::int64_t round = 0; round < rounds; ++round) {
      enter();
      wait_all_entered();
      float sums[piece];
      for (std::size_t at = first; at < end; at += piece) {
        const std::size_t n = std::min(piece, end - at);
        sum_piece(sums, in.data(), ranks, at, n);
        for (std::size_t r = 0; r < ranks; ++r) std::memcpy(out[r] + at, sums, n * sizeof(float));
      }
      finish();
      data->sample();
    }
  }

  void run_rounds(perf::scattered_sum* data, std::int64_t rounds) {
    const std::size_t ranks = static_cast<std::size_t>(size()), count = data->out().size();
    std::array<const float*, most_ranks> in;
    for (int r = 0; r < size(); ++r)
      in[static_cast<std::size_t>(r)] = of(r, data->in().data()) + count * static_cast<std::size_t>(rank());
    for (std::int64_t round = 0; round < rounds; ++round) {
      enter();
      wait_all_entered();
      for (std::size_t at = 0; at < count; at += piece)
        sum_piece(data->out().data() + at, in.data(), ranks, at, std::min(piece, count - at));
      finish();
      data->sample();
    }
  }

  void run_rounds(perf::broadcast_message* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      enter();
      if (rank() != 0) {
        wait_entered(0);
        std::memcpy(data->data().data(), of(0, data->data().data()), data->data().size());
      }
      finish();
      data->sample();
    }
  }

  void run_rounds(perf::gathered_blocks* data, std::int64_t rounds) {
    const std::size_t block = data->in().size();
    for (std::int64_t round = 0; round < rounds; ++round) {
      enter();
      wait_all_entered();
      for (int r = 0; r < size(); ++r)
        std::memcpy(data->out().data() + block * static_cast<std::size_t>(r), of(r, data->in().data()),
                    block);
      finish();
      data->sample();
    }
  }

  void run_rounds(perf::exchanged_blocks* data, std::int64_t rounds) {
    const std::size_t block = data->in().size() / static_cast<std::size_t>(size());
    for (std::int64_t round = 0; round < rounds; ++round) {
      enter();
      wait_all_entered();
      for (int r = 0; r < size(); ++r)
        std::memcpy(data->out().data() + block * static_cast<std::size_t>(r),
                    of(r, data->in().data()) + block * static_cast<std::size_t>(rank()), block);
      finish();
      data->sample();
    }
  }

  void run_rounds(perf::barrier_times* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round == rounds - 1) data->enter();
      enter();
      wait_all_entered();
    }
    data->leave();
  }

 private:
  std::byte* at(int r) const noexcept {
    return mapping_.begin + mapping_.bytes_per_rank * static_cast<std::size_t>(r);
  }
  // A peer's buffer that corresponds to `own`.
  template <class T>
  T* of(int r, T* own) const noexcept {
    using bytes = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return reinterpret_cast<T*>(reinterpret_cast<bytes*>(own) + (at(r) - at(rank())));
  }

  flag& entered_flag(int r) const noexcept { return mapping_.flags[2 * r]; }
  flag& finished_flag(int r) const noexcept { return mapping_.flags[2 * r + 1]; }

  void enter() noexcept { entered_flag(rank()).value.store(++entered_, std::memory_order_release); }
  // Waits until `r` has entered as often as this rank, plus `ahead` times.
  void wait_entered(int r, std::uint64_t ahead = 0) const {
    const flag& theirs = entered_flag(r);
    perf::wait_until([&] { return theirs.value.load(std::memory_order_acquire) >= entered_ + ahead; });
  }
  void wait_all_entered() const {
    for (int r = 0; r < size(); ++r) wait_entered(r);
  }
  // Finishes this rank's part and waits for all others: then results are complete and inputs reusable.
  void finish() {
    finished_flag(rank()).value.store(entered_, std::memory_order_release);
    for (int r = 0; r < size(); ++r) {
      const flag& theirs = finished_flag(r);
      perf::wait_until([&] { return theirs.value.load(std::memory_order_acquire) >= entered_; });
    }
  }
  void put(std::span<const std::byte> message) noexcept {
    flag& own = entered_flag(rank());
    if (message.size() <= sizeof own.message) std::memcpy(own.message, message.data(), message.size());
    own.value.store(++entered_, std::memory_order_release);
  }
  void take(std::span<std::byte> to, std::span<const std::byte> place, int peer) {
    const flag& theirs = entered_flag(peer);
    const std::uint64_t wanted = rank() == 0 ? entered_ : entered_ + 1;
    perf::wait_until([&] { return theirs.value.load(std::memory_order_acquire) >= wanted; });
    const bool with_flag = to.size() <= sizeof theirs.message;
    std::memcpy(to.data(), with_flag ? theirs.message : of(peer, place.data()), to.size());
  }

  shared_mapping mapping_;
  std::uint64_t entered_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return perf::run_forked_program<memory_world>(argc, argv, names, make_mapping, mapping_memory);
}
