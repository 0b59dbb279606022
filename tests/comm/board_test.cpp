// SPDX-License-Identifier: Apache-2.0
// Two boards in one thread: whom they notify.
#include "comm/board.hpp"
#include "core/loop.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

using namespace tutti;

namespace {

// Both ranks' memory, and what each has been told.
struct host {
  struct region {
    void* at;
    std::size_t bytes;
  };
  ~host() {
    for (const auto& [number, r] : regions) ::munmap(r.at, r.bytes);
  }
  std::map<std::uint64_t, region> regions;
  std::array<std::atomic<std::uint32_t>, 2> asleep{};
  std::array<int, 2> notified{};
};

class near_ranks final : public transport::neighbours {
 public:
  explicit near_ranks(host& h) noexcept : host_(h) {}
  bool show(int, const base::shared_place& place) noexcept override {
    if (host_.regions.contains(place.region)) return true;
    void* const at = ::mmap(nullptr, place.region_bytes, PROT_READ, MAP_SHARED, place.fd, 0);
    if (at == MAP_FAILED) return false;
    host_.regions.emplace(place.region, host::region{at, place.region_bytes});
    return true;
  }
  const std::byte* look_at(int, std::uint64_t region, std::uint64_t offset,
                           std::uint64_t bytes) noexcept override {
    const auto found = host_.regions.find(region);
    if (found == host_.regions.end() || offset + bytes > found->second.bytes) return nullptr;
    return static_cast<const std::byte*>(found->second.at) + offset;
  }
  const std::atomic<std::uint32_t>* sleeps(int peer) noexcept override {
    return &host_.asleep[static_cast<std::size_t>(peer)];
  }
  void ring(int peer) noexcept override { ++host_.notified[static_cast<std::size_t>(peer)]; }
  void add(core::source&) override {}
  void remove(core::source&) noexcept override {}

 private:
  host& host_;
};

struct two_boards {
  two_boards() {
    std::array<comm::board::card, 2> cards;
    for (int r = 0; r < 2; ++r) cards[static_cast<std::size_t>(r)] = (*this)[r].make_part();
    for (int r = 0; r < 2; ++r) REQUIRE((*this)[r].show_part());
    for (int r = 0; r < 2; ++r) {
      REQUIRE((*this)[r].look_at(1 - r, cards[static_cast<std::size_t>(1 - r)]));
      (*this)[r].decide(true);
    }
  }
  comm::board& operator[](int rank) { return rank == 0 ? first : second; }

  host memory;
  near_ranks near{memory};
  boost::asio::io_context context{1};
  core::loop loop{context};
  const std::vector<int> members = {0, 1};
  comm::board first{loop, near, members, 0};
  comm::board second{loop, near, members, 1};
};

p2p::fingerprint print_of(int kind) {
  p2p::fingerprint print{};
  print[0] = static_cast<std::byte>(kind);
  return print;
}

}  // namespace

TEST_CASE("board: a rank that waits for room is notified by one that calls no further operation") {
  two_boards boards;
  std::uint32_t operation = 0;
  for (std::size_t i = 0; i < comm::board::slots; ++i) {
    boards[0].begin(++operation, print_of(1));
    REQUIRE(boards[0].room_for(0) < 0);
    boards[0].arrive();
    boards[0].finish();
  }
  boards[0].begin(++operation, print_of(1));
  REQUIRE(boards[0].room_for(0) == 1);
  boards.memory.asleep[0] = 1;
  boards[1].begin(1, print_of(1));
  boards[1].arrive();
  boards.memory.notified[0] = 0;
  boards[1].finish();
  CHECK(boards[0].room_for(0) < 0);
  boards[1].poll();  // its loop turns
  CHECK(boards.memory.notified[0] == 1);
  boards[1].poll();
  CHECK(boards.memory.notified[0] == 1);
}

TEST_CASE("board: calls that differed show at the next operation, when nobody compared them") {
  two_boards boards;
  const auto call = [&](int rank, std::uint32_t sequence, int kind) {
    boards[rank].begin(sequence, print_of(kind));
    boards[rank].arrive();
  };
  for (int r = 0; r < 2; ++r) call(r, 1, 1);
  CHECK(boards[0].look_for(1) == comm::board::arrival::here);
  for (int r = 0; r < 2; ++r) boards[r].finish();
  for (int r = 0; r < 2; ++r) {
    call(r, 2, 2 + r);
    boards[r].finish();
  }
  for (int r = 0; r < 2; ++r) call(r, 3, 1);
  for (int r = 0; r < 2; ++r) CHECK(boards[r].look_for(1 - r) == comm::board::arrival::other);
}
