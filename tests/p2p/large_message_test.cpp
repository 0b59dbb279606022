// SPDX-License-Identifier: Apache-2.0
// Messages and collectives of more than 4 GiB. Needs 11 GiB of memory and some seconds, so only with
// TUTTI_TEST_LARGE=1.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <cstdlib>
#include <memory>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t count =
    (std::size_t{5} << 30) / sizeof(std::uint64_t) + 3;  // not a multiple of anything

std::uint64_t value_of(std::size_t i) { return i * 0x9e3779b97f4a7c15ULL + 1; }

task<> one_large_message(communicator world) {
  std::vector<std::uint64_t> data(count);
  if (world.rank() == 0) {
    for (std::size_t i = 0; i < count; ++i) data[i] = value_of(i);
    co_await world.send(data, 1);
  } else {
    const status st = co_await world.recv(data, 0);
    TUTTI_EXPECT(st.bytes == count * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < count; ++i) TUTTI_EXPECT(data[i] == value_of(i));
  }
  // More bytes than a 32-bit number can count.
  co_await world.broadcast(
      std::span<unsigned char>(reinterpret_cast<unsigned char*>(data.data()), data.size() * 8), 1);
  if (world.rank() == 0)
    for (std::size_t i = 0; i < count; ++i) TUTTI_EXPECT(data[i] == value_of(i));
  for (std::size_t i = 0; i < count; ++i) data[i] = i;
  co_await world.all_reduce(data, sum);
  for (std::size_t i = 0; i < count; ++i) TUTTI_EXPECT(data[i] == 2 * i);
}

}  // namespace

TEST_CASE("more than 4 GiB in one message, one broadcast, one all_reduce") {
  const char* const wanted = std::getenv("TUTTI_TEST_LARGE");
  if (wanted == nullptr || *wanted != '1')
    TUTTI_SKIP("11 GiB of memory are asked for by TUTTI_TEST_LARGE=1 only");
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport, std::chrono::minutes(5)), one_large_message));
  }
}
