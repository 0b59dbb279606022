// SPDX-License-Identifier: Apache-2.0
#include "track/record_queue.hpp"

#include <doctest/doctest.h>
#include <thread>
#include <vector>

using namespace tutti::track;
using tutti::track::when_full;

namespace {

record numbered(std::int64_t step) {
  record r;
  r.name = "n";
  r.step = step;
  r.said = 1.0;
  return r;
}

const std::size_t one = bytes_of(numbered(0));

}  // namespace

TEST_CASE("record queue: a full queue drops and counts the oldest records") {
  record_queue queue(10 * one, when_full::drop_oldest);
  for (int i = 0; i < 25; ++i) queue.push(numbered(i));
  CHECK(queue.dropped() == 15);
  CHECK(queue.bytes() == 10 * one);
  const std::vector<record> some = queue.take(1 << 20);
  REQUIRE(some.size() == 5);
  CHECK(some.front().step == 15);
  // Records that are being written cannot be dropped. New ones have the other half of the memory.
  for (int i = 25; i < 50; ++i) queue.push(numbered(i));
  queue.release();
  CHECK(queue.take(1 << 20).front().step == 45);
  queue.release();
  CHECK(queue.take(1 << 20).empty());
  CHECK(queue.dropped() == 40);
}

TEST_CASE("record queue: or it drops the newest") {
  record_queue queue(10 * one, when_full::drop_newest);
  for (int i = 0; i < 25; ++i) queue.push(numbered(i));
  CHECK(queue.dropped() == 15);
  queue.take(1 << 20);
  CHECK(queue.take(1 << 20).back().step == 9);
}

TEST_CASE("record queue: records being written count; a record larger than the queue is dropped alone") {
  record_queue queue(10 * one, when_full::drop_oldest);
  for (int i = 0; i < 10; ++i) queue.push(numbered(i));
  CHECK(queue.take(4 * one).size() == 4);
  CHECK(queue.bytes() == 10 * one);
  CHECK_FALSE(queue.has_room());
  record large = numbered(99);
  large.said = std::string(100 * one, 'x');
  queue.push(std::move(large));
  CHECK(queue.dropped() == 1);
  CHECK(queue.take(1 << 20).size() == 5);
  queue.release();
  CHECK(queue.has_room());
}

TEST_CASE("record queue: once closed it accepts nothing and returns its contents") {
  record_queue queue(10 * one, when_full::drop_oldest);
  queue.push(numbered(1));
  queue.close();
  queue.push(numbered(2));
  queue.wait(std::chrono::steady_clock::now() + std::chrono::hours(1), std::chrono::hours(1));
  CHECK(queue.take(1 << 20).size() == 1);
  CHECK(queue.dropped() == 0);
}

TEST_CASE("record queue: with many producers and one writer, every record is written or counted") {
  record_queue queue(50 * one, when_full::drop_oldest);
  constexpr int talkers = 4, each = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < talkers; ++t)
    threads.emplace_back([&queue] {
      for (int i = 0; i < each; ++i) queue.push(numbered(i));
    });
  std::uint64_t had = 0;
  std::thread writer([&] {
    for (;;) {
      queue.wait(std::chrono::steady_clock::now() + std::chrono::seconds(60), std::chrono::milliseconds(0));
      const std::size_t n = queue.take(10 * one).size();
      had += n;
      if (queue.ended()) return;
    }
  });
  for (std::thread& t : threads) t.join();
  queue.close();
  writer.join();
  CHECK(had + queue.dropped() == static_cast<std::uint64_t>(talkers) * each);
}
