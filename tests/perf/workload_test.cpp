// SPDX-License-Identifier: Apache-2.0
// These checks decide the value of the check column.
#include "common/workload.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <cstring>
#include <span>

namespace {

void deliver(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

TEST_CASE("latency: right messages are no fault; missing and damaged ones are") {
  perf::message_pair zero(100, 0), one(100, 1);
  zero.prepare(5);
  one.prepare(5);
  zero.sample();
  CHECK(zero.faults() == 1);
  deliver(zero.out(), one.in());
  deliver(one.out(), zero.in());
  zero.sample();
  one.sample();
  zero.check();
  one.check();
  CHECK(zero.faults() == 1);
  CHECK(one.faults() == 0);
  one.in()[50] ^= std::byte{1};
  one.sample();
  CHECK(one.faults() == 0);  // not in the sample
  one.check();
  CHECK(one.faults() == 1);
}

TEST_CASE("what is sent again is written anew, with the same contents") {
  perf::message_pair zero(100, 0), one(100, 1);
  zero.prepare(5, true);
  one.prepare(5, true);
  for (int round = 0; round < 2; ++round) {
    deliver(zero.out(), one.in());
    deliver(one.out(), zero.in());
    zero.sample();
    one.sample();
  }
  one.check();
  CHECK(one.faults() == 0);
}

TEST_CASE("fetch_add: a number that comes twice is a fault") {
  perf::remote_count data(0);
  data.sample(0);
  data.sample(1);
  data.prepare(5);  // it counts on
  data.sample(2);
  CHECK(data.faults() == 0);
  data.sample(2);
  CHECK(data.faults() == 1);
}

TEST_CASE("bandwidth: exchanged messages are faults") {
  perf::message_window sender(100, 4, 0), receiver(100, 4, 1);
  sender.prepare(5);
  receiver.prepare(5);
  for (int i = 0; i < 4; ++i) deliver(sender.slot(i), receiver.slot(i));
  receiver.sample();
  receiver.check();
  CHECK(receiver.faults() == 0);
  deliver(sender.slot(2), receiver.slot(1));
  receiver.sample();
  receiver.check();
  CHECK(receiver.faults() == 2);
  sender.sample_answer(3, 3);
  CHECK(sender.faults() == 0);
  sender.sample_answer(2, 3);
  CHECK(sender.faults() == 1);
}

TEST_CASE("all_reduce: the sum of the previous batch is a fault") {
  perf::vector_sum zero(400, 0, 2), one(400, 1, 2);
  const auto reduce = [&] {
    for (std::size_t i = 0; i < zero.out().size(); ++i) zero.out()[i] = zero.in()[i] + one.in()[i];
  };
  zero.prepare(1);
  one.prepare(1);
  reduce();
  zero.sample();
  zero.check();
  CHECK(zero.faults() == 0);
  zero.prepare(2);
  one.prepare(2);
  zero.check();
  CHECK(zero.faults() == 1);
}

TEST_CASE("all_reduce in place: the addends are back before every operation") {
  perf::vector_sum zero(400, 0, 2, perf::ordinary_memory, true), one(400, 1, 2, perf::ordinary_memory, true);
  CHECK(zero.in().data() == zero.out().data());
  zero.prepare(1);
  one.prepare(1);
  for (int round = 0; round < 2; ++round) {
    zero.load();
    one.load();
    for (std::size_t i = 0; i < zero.out().size(); ++i) zero.out()[i] += one.in()[i];
    zero.sample();
  }
  zero.check();
  CHECK(zero.faults() == 0);
}
