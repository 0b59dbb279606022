// SPDX-License-Identifier: Apache-2.0
// Control messages arrive unchanged, and malformed ones have no effect.
#include "p2p/control_messages.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::p2p;

namespace {

constexpr std::size_t ranks = 8;

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

}  // namespace

TEST_CASE("control messages: a failure arrives with its reason, its ranks, its extent and its subject") {
  const std::string text = "rank 3 died";
  const std::vector<int> failed = {3, 5};
  for (const auto& [reach, names] : {std::pair(extent::one, subject::collective),
                                     {extent::one, subject::other},
                                     {extent::children, subject::other},
                                     {extent::unmade, subject::other},
                                     {extent::children, subject::collective}}) {
    const control_frame f = failure_message{errc::peer_failed, text, reach, failed, 17, names}.encode(9);
    CHECK(f.head.kind == transport::frame_kind::fail);
    CHECK(f.head.context == 9);
    CHECK(f.head.length == f.payload.size());
    const failure_message told = failure_message::decode(f.head, f.payload, ranks);
    CHECK(told.why == errc::peer_failed);
    CHECK(told.text == text);
    CHECK(told.reach == reach);
    CHECK(told.failed == failed);
    CHECK(told.first == 17);
    CHECK(told.names == names);
  }
}

TEST_CASE("control messages: long failures are truncated, and stay readable") {
  const std::string text(10'000, 'x');
  const std::vector<int> failed(5'000, 1);
  const control_frame f = failure_message{errc::cancelled, text, extent::one, failed, 0}.encode(1);
  const failure_message told = failure_message::decode(f.head, f.payload, ranks);
  CHECK(told.text == std::string(4'000, 'x'));
  CHECK(told.failed.size() == 4'096);
}

TEST_CASE("control messages: a failure without a valid payload is still a failure") {
  const std::string text = "out of paper";
  const transport::frame head = failure_message{errc::resources, text}.encode(1).head;
  CHECK(failure_message::decode(head, {}, ranks).why == errc::resources);
  CHECK(failure_message::decode(head, {}, ranks).text.empty());
  for (const std::int32_t no_reason : {0, 18, 4'711}) {
    transport::frame other = head;
    other.tag = no_reason;
    CHECK(failure_message::decode(other, {}, ranks).why == errc::protocol);
  }
  // Shorter than its counts; more ranks than bytes; invalid ranks.
  CHECK(failure_message::decode(head, bytes_of({1, 2, 3}), ranks).failed.empty());
  const failure_message many =
      failure_message::decode(head, bytes_of({7, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0}), ranks);
  CHECK(many.first == 7);
  CHECK(many.failed == std::vector<int>{2});
  CHECK(many.text.empty());
  CHECK(failure_message::decode(head, bytes_of({0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 'o', 'k'}), ranks)
            .failed.empty());
  CHECK(failure_message::decode(head, bytes_of({0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 'o', 'k'}), ranks).text ==
        "ok");
}

TEST_CASE("control messages: progress arrives; invalid states and ranks are dropped") {
  progress_message here;
  here.sequence = 13;
  here.at = progress_message::state::waiting;
  here.last = 12;
  here.print[3] = std::byte{5};
  for (const int waits_for : {-1, 0, 7}) {
    here.waits_for = waits_for;
    const auto there = progress_message::decode(here.encode(4).head, ranks);
    REQUIRE(there);
    CHECK(there->sequence == 13);
    CHECK(there->at == here.at);
    CHECK(there->last == 12);
    CHECK(there->print == here.print);
    CHECK(there->waits_for == waits_for);
  }
  transport::frame forged = here.encode(4).head;
  forged.length = 9;
  CHECK(progress_message::decode(forged, ranks)->waits_for == -1);
  forged.transfer_id = 4;
  CHECK_FALSE(progress_message::decode(forged, ranks));
}
