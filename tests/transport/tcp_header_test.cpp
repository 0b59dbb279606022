// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/header.hpp"

#include "base/crc32c.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

namespace {

using namespace tutti::transport;
using tcp::header;

frame some_frame() {
  frame f;
  f.kind = frame_kind::data;
  f.context = 0x80000001U;
  f.tag = -7;
  f.length = 123456;
  f.transfer_id = 0xFEDCBA9876543210U;
  f.other_transfer_id = 0x0123456789ABCDEFU;
  for (std::size_t i = 0; i < f.fingerprint.size(); ++i) f.fingerprint[i] = static_cast<std::byte>(i + 1);
  return f;
}

const char* complaint(const frame& f) {
  header h;
  tcp::encode(f, h);
  frame back;
  tcp::passage way;
  return tcp::decode(h, back, way);
}

}  // namespace

TEST_CASE("tcp header: every kind of frame survives the round trip") {
  for (int kind = static_cast<int>(frame_kind::eager); kind <= static_cast<int>(frame_kind::agree); ++kind) {
    if (kind == static_cast<int>(frame_kind::fin)) continue;  // for shared memory only
    frame f = some_frame();
    f.kind = static_cast<frame_kind>(kind);
    if (f.kind == frame_kind::eager || f.kind == frame_kind::fail || f.kind == frame_kind::agree)
      f.length = 65536;
    header h;
    tcp::encode(f, h);
    frame back;
    tcp::passage way;
    REQUIRE(tcp::decode(h, back, way) == nullptr);
    CHECK(back.kind == f.kind);
    CHECK(back.context == f.context);
    CHECK(back.tag == f.tag);
    CHECK(back.length == f.length);
    CHECK(back.transfer_id == f.transfer_id);
    CHECK(back.other_transfer_id == f.other_transfer_id);
    CHECK(back.fingerprint == f.fingerprint);
  }
}

TEST_CASE("tcp header: the layout is little endian and fixed") {
  header h;
  tcp::encode(some_frame(), h);
  CHECK(h[5] == 5);
  CHECK(h[8] == 0x01);
  CHECK(h[11] == 0x80);
  CHECK(h[24] == 0x10);
  CHECK(h[31] == 0xFE);
  CHECK(h[40] == 1);
  CHECK(h[55] == 16);
}

TEST_CASE("tcp header: any changed bit is detected") {
  header good;
  tcp::encode(some_frame(), good);
  for (std::size_t byte = 0; byte < good.size(); ++byte) {
    for (int change = 1; change < 256; ++change) {
      header bad = good;
      bad[byte] = static_cast<std::uint8_t>(bad[byte] ^ change);
      frame f;
      tcp::passage way;
      if (tcp::decode(bad, f, way) == nullptr) FAIL("byte ", byte, " xor ", change, " passed");
    }
  }
}

TEST_CASE("tcp header: lengths are bounded by kind") {
  frame f = some_frame();
  f.kind = frame_kind::eager;
  f.length = tcp::eager_limit_bytes;
  CHECK(complaint(f) == nullptr);
  f.length = tcp::eager_limit_bytes + 1;
  CHECK(complaint(f) != nullptr);
  f.kind = frame_kind::fail;
  CHECK(complaint(f) != nullptr);
  f.kind = frame_kind::data;
  f.length = tcp::slice_bytes;
  CHECK(complaint(f) == nullptr);
  f.length = tcp::slice_bytes + 1;
  CHECK(complaint(f) != nullptr);
  f.length = ~std::uint64_t{0};
  CHECK(complaint(f) != nullptr);
  // No bytes follow an rts frame: its length is the message's.
  f.kind = frame_kind::rts;
  CHECK(complaint(f) == nullptr);
  CHECK(payload_bytes(f) == 0);
}

TEST_CASE("tcp header: unknown kinds and flags are refused even with a good checksum") {
  const auto with = [](std::size_t at, std::uint8_t value) {
    header h;
    tcp::encode(some_frame(), h);
    h[at] = value;
    const std::uint32_t crc = tutti::base::crc32c(std::span<const std::uint8_t>(h).first(60));
    for (std::size_t i = 0; i < 4; ++i) h[60 + i] = static_cast<std::uint8_t>(crc >> (8 * i));
    frame f;
    tcp::passage way;
    return tcp::decode(h, f, way);
  };
  CHECK(with(5, 5) == nullptr);
  // `fin` is for shared memory only.
  const int memory_only = static_cast<int>(frame_kind::fin), beyond = static_cast<int>(frame_kind::alive) + 1;
  for (const int kind : {0, memory_only, beyond, beyond + 1, 255})
    CHECK(with(5, static_cast<std::uint8_t>(kind)) != nullptr);
  CHECK(with(4, 2) != nullptr);
  CHECK(with(6, 2) != nullptr);
  CHECK(with(6, 255) != nullptr);
  CHECK(with(56, 1) != nullptr);
  CHECK(with(59, 128) != nullptr);
}

TEST_CASE("tcp header: random bytes are refused") {
  std::mt19937_64 random(7);
  header h;
  for (int round = 0; round < 200'000; ++round) {
    for (std::size_t i = 0; i < h.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(h.data() + i, &word, 8);
    }
    // Half of them pass the first checks.
    if (round % 2 == 0) {
      header good;
      tcp::encode(some_frame(), good);
      std::memcpy(h.data(), good.data(), 8);
    }
    frame f;
    tcp::passage way;
    if (tcp::decode(h, f, way) == nullptr) FAIL("round ", round, " passed");
  }
}
