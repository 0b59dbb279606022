// SPDX-License-Identifier: Apache-2.0
// Two segments in one thread: which ranks they notify.
#include "comm/collective_segment.hpp"
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

// The memory of both ranks, and the notifications that each has received.
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
  const std::byte* find_memory(int, std::uint64_t region, std::uint64_t offset,
                               std::uint64_t bytes) noexcept override {
    const auto found = host_.regions.find(region);
    if (found == host_.regions.end() || offset + bytes > found->second.bytes) return nullptr;
    return static_cast<const std::byte*>(found->second.at) + offset;
  }
  std::byte* find_writable(int, std::uint64_t, std::uint64_t, std::uint64_t) noexcept override {
    return nullptr;
  }
  const std::atomic<std::uint32_t>* sleeps(int peer) noexcept override {
    return &host_.asleep[static_cast<std::size_t>(peer)];
  }
  void notify(int peer) noexcept override { ++host_.notified[static_cast<std::size_t>(peer)]; }

 private:
  host& host_;
};

struct two_segments {
  two_segments() {
    std::array<comm::collective_segment::handle, 2> handles;
    for (int r = 0; r < 2; ++r) handles[static_cast<std::size_t>(r)] = (*this)[r].make_part();
    for (int r = 0; r < 2; ++r) REQUIRE((*this)[r].show_part());
    for (int r = 0; r < 2; ++r) {
      REQUIRE((*this)[r].find_part(1 - r, handles[static_cast<std::size_t>(1 - r)]));
      (*this)[r].decide(true);
    }
  }
  comm::collective_segment& operator[](int rank) { return rank == 0 ? first : second; }

  host memory;
  near_ranks near{memory};
  boost::asio::io_context context{1};
  core::loop loop{context};
  const std::vector<int> members = {0, 1};
  comm::collective_segment first{loop, near, members, 0};
  comm::collective_segment second{loop, near, members, 1};
};

p2p::fingerprint print_of(int kind) {
  p2p::fingerprint print{};
  print[0] = static_cast<std::byte>(kind);
  return print;
}

}  // namespace

TEST_CASE("collective segment: a rank that makes no further call still notifies one that waits for space") {
  two_segments segments;
  std::uint32_t operation = 0;
  for (std::size_t i = 0; i < comm::collective_segment::slots; ++i) {
    segments[0].begin(++operation, print_of(1));
    REQUIRE(segments[0].room_for(0) < 0);
    segments[0].arrive();
    segments[0].finish();
  }
  segments[0].begin(++operation, print_of(1));
  REQUIRE(segments[0].room_for(0) == 1);
  segments.memory.asleep[0] = 1;
  segments[1].begin(1, print_of(1));
  segments[1].arrive();
  segments.memory.notified[0] = 0;
  segments[1].finish();
  CHECK(segments[0].room_for(0) < 0);
  segments[1].poll();  // a turn of its loop
  CHECK(segments.memory.notified[0] == 1);
  segments[1].poll();
  CHECK(segments.memory.notified[0] == 1);
}

TEST_CASE("collective segment: an operation that ends while the loop is parked still notifies") {
  two_segments segments;
  core::loop& loop = segments.loop;
  loop.hold();
  const auto run_until = [&](auto reached) {
    for (int i = 0; i < 1'000 && !reached(); ++i) segments.context.poll();
    REQUIRE(reached());
  };
  run_until([&] { return loop.counters().parks == 1; });
  segments.memory.asleep[0] = 1;
  segments[1].begin(1, print_of(1));
  segments[1].arrive();
  segments.memory.notified[0] = 0;
  segments[1].finish();
  run_until([&] { return segments.memory.notified[0] == 1; });
  loop.release();
}

TEST_CASE("collective segment: the next operation detects calls that differed and that no rank compared") {
  two_segments segments;
  const auto call = [&](int rank, std::uint32_t sequence, int kind) {
    segments[rank].begin(sequence, print_of(kind));
    segments[rank].arrive();
  };
  for (int r = 0; r < 2; ++r) call(r, 1, 1);
  CHECK(segments[0].check_arrival(1) == comm::collective_segment::arrival::here);
  for (int r = 0; r < 2; ++r) segments[r].finish();
  for (int r = 0; r < 2; ++r) {
    call(r, 2, 2 + r);
    segments[r].finish();
  }
  for (int r = 0; r < 2; ++r) call(r, 3, 1);
  for (int r = 0; r < 2; ++r)
    CHECK(segments[r].check_arrival(1 - r) == comm::collective_segment::arrival::other);
}
