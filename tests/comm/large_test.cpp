// SPDX-License-Identifier: Apache-2.0
// Counts beyond 2^31 and 2^32 bytes: every byte arrives, and no count is truncated. Needs much memory and
// time, so runs only on request: TUTTI_TEST_LARGE=1 build/dev/tests/scale_test
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t GiB = std::size_t{1} << 30;
constexpr std::chrono::minutes long_patience(10);

std::size_t available_memory() {
  std::ifstream facts("/proc/meminfo");
  std::string name;
  for (std::size_t kib = 0; facts >> name >> kib; facts.ignore(64, '\n'))
    if (name == "MemAvailable:") return kib * 1024;
  return 0;
}

// Why the tests do not run; empty if they do.
std::string refusal(std::size_t needed) {
  if (std::getenv("TUTTI_TEST_LARGE") == nullptr) return "TUTTI_TEST_LARGE=1 asks for messages beyond 4 GiB";
  if (available_memory() < needed) return "there are not " + std::to_string(needed / GiB) + " GiB of memory";
  return {};
}

// Zeroed memory from the system, which uses no pages until they are touched.
class pages {
 public:
  explicit pages(std::size_t bytes) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~pages() { ::munmap(at_, bytes_); }
  pages(const pages&) = delete;
  std::span<std::uint8_t> span() const noexcept { return {static_cast<std::uint8_t*>(at_), bytes_}; }

 private:
  void* at_;
  std::size_t bytes_;
};

// A byte that identifies its position, at every MiB and at the end. Checking all bytes would cost as much as
// sending them, and a truncated count moves or loses whole MiB.
std::uint8_t mark(std::size_t i) noexcept { return static_cast<std::uint8_t>((i >> 20) * 7 + (i >> 31) + 3); }
template <class Each>
void at_marks(std::size_t bytes, Each each) {
  for (std::size_t i = 0; i < bytes; i += std::size_t{1} << 20) each(i);
  each(bytes - 1);
}
void fill_marks(std::span<std::uint8_t> data) {
  at_marks(data.size(), [&](std::size_t i) { data[i] = mark(i); });
}
void expect_marks(std::span<const std::uint8_t> data, std::uint8_t times = 1) {
  at_marks(data.size(),
           [&](std::size_t i) { TUTTI_EXPECT(data[i] == static_cast<std::uint8_t>(times * mark(i))); });
}

task<> one_way(communicator world, std::size_t bytes) {
  const pages data(bytes);
  if (world.rank() == 0) {
    fill_marks(data.span());
    co_await world.send(data.span(), 1);
  } else {
    const status s = co_await world.recv(data.span(), 0);
    TUTTI_EXPECT(s.bytes == bytes);
    expect_marks(data.span());
  }
}

task<> collectives(communicator world, std::size_t bytes) {
  const pages data(bytes);
  fill_marks(data.span());
  co_await world.all_reduce(data.span(), sum);
  expect_marks(data.span(), 2);
  if (world.rank() != 0) std::ranges::fill(data.span().last(GiB), std::uint8_t{0});
  co_await world.broadcast(data.span(), 0);
  expect_marks(data.span(), 2);
}

}  // namespace

TEST_SUITE("comm/large") {
  TEST_CASE("messages beyond 2^31 and 2^32 bytes") {
    if (const std::string why = refusal(10 * GiB); !why.empty()) TUTTI_SKIP(why);
    for (const std::string& transport : transports)
      for (const std::size_t bytes : {2 * GiB + 9, 4 * GiB + 9}) {
        CAPTURE(transport);
        CAPTURE(bytes);
        CHECK_NOTHROW(run_local(2, over(transport, long_patience),
                                [bytes](communicator world) { return one_way(std::move(world), bytes); }));
      }
  }

  TEST_CASE("collectives of more than 2^32 bytes") {
    if (const std::string why = refusal(15 * GiB); !why.empty()) TUTTI_SKIP(why);
    for (const std::string& transport : transports) {
      CAPTURE(transport);
      CHECK_NOTHROW(run_local(2, over(transport, long_patience),
                              [](communicator world) { return collectives(std::move(world), 4 * GiB + 9); }));
    }
  }
}
