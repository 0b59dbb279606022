// SPDX-License-Identifier: Apache-2.0
#include "core/timer_queue.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

using namespace std::chrono_literals;
using tutti::core::time_point;
using tutti::core::timer;
using tutti::core::timer_queue;

namespace {

constexpr time_point at(int ms) { return time_point{} + std::chrono::milliseconds(ms); }

struct log_entry {
  std::vector<int>* log;
  int name;
  static void write(void* self) noexcept {
    auto& e = *static_cast<log_entry*>(self);
    e.log->push_back(e.name);
  }
};

using ints = std::vector<int>;

}  // namespace

TEST_CASE("timers fire when they are due, ordered by time") {
  ints log;
  log_entry entries[] = {{&log, 0}, {&log, 1}, {&log, 2}};
  timer_queue queue;
  timer a(&log_entry::write, &entries[0]), b(&log_entry::write, &entries[1]),
      c(&log_entry::write, &entries[2]);
  CHECK(queue.empty());
  CHECK(queue.next() == time_point::max());
  queue.arm(a, at(30));
  queue.arm(b, at(10));
  queue.arm(c, at(20));
  CHECK(queue.next() == at(10));
  CHECK_FALSE(queue.fire_due(at(9)));
  CHECK(queue.fire_due(at(10)));
  CHECK(log == ints{1});
  CHECK_FALSE(b.armed());
  CHECK(queue.fire_due(at(40)));
  CHECK(log == ints{1, 2, 0});
  CHECK(queue.empty());
  CHECK_FALSE(queue.fire_due(at(100)));
}

TEST_CASE("arming again moves a timer, cancelling removes it") {
  ints log;
  log_entry entries[] = {{&log, 0}, {&log, 1}};
  timer_queue queue;
  timer a(&log_entry::write, &entries[0]), b(&log_entry::write, &entries[1]);
  queue.arm(a, at(10));
  queue.arm(b, at(20));
  queue.arm(a, at(30));
  CHECK(a.when() == at(30));
  CHECK(queue.next() == at(20));
  b.cancel();
  b.cancel();
  CHECK_FALSE(b.armed());
  queue.fire_due(at(29));
  CHECK(log.empty());
  queue.fire_due(at(30));
  CHECK(log == ints{0});
}

TEST_CASE("a timer and its queue may be destroyed in either order") {
  ints log;
  log_entry entry{&log, 0};
  timer_queue queue;
  timer stays(&log_entry::write, &entry);
  {
    timer goes(&log_entry::write, &entry);
    queue.arm(goes, at(1));
  }
  CHECK(queue.empty());
  {
    timer_queue shorter;
    shorter.arm(stays, at(1));
  }
  CHECK_FALSE(stays.armed());
  queue.arm(stays, at(2));
  queue.fire_due(at(2));
  CHECK(log.size() == 1);
}

namespace {

// Changes timers when it fires.
struct actor {
  timer_queue& queue;
  std::vector<int>& log;
  int name;
  std::vector<std::unique_ptr<actor>>* all = nullptr;
  timer t{&act, this};
  void (*deed)(actor&) = nullptr;

  actor(timer_queue& q, std::vector<int>& l, int n) : queue(q), log(l), name(n) {}
  static void act(void* self) noexcept {
    auto& a = *static_cast<actor*>(self);
    a.log.push_back(a.name);
    if (a.deed != nullptr) a.deed(a);
  }
};

}  // namespace

TEST_CASE("a timer that fires may arm itself, and cancel and destroy others and itself") {
  timer_queue queue;
  ints log;
  std::vector<std::unique_ptr<actor>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(std::make_unique<actor>(queue, log, i));
    all.back()->all = &all;
    queue.arm(all.back()->t, at(10 + i));
  }
  all[0]->deed = [](actor& a) { a.queue.arm(a.t, at(100)); };
  all[1]->deed = [](actor& a) { (*a.all)[2]->t.cancel(); };
  all[3]->deed = [](actor& a) {
    (*a.all)[4].reset();
    (*a.all)[3].reset();
  };
  CHECK(queue.fire_due(at(50)));
  CHECK(log == ints{0, 1, 3});
  CHECK(queue.next() == at(100));
}

TEST_CASE("a timer armed for now while another fires is due at the next poll") {
  timer_queue queue;
  ints log;
  actor again(queue, log, 0);
  again.deed = [](actor& a) { a.queue.arm(a.t, at(10)); };
  queue.arm(again.t, at(10));
  CHECK(queue.fire_due(at(10)));
  CHECK(log == ints{0});
  CHECK(queue.fire_due(at(10)));
  CHECK(log == ints{0, 0});
}

TEST_CASE("random arming, cancelling and firing gives the same result as a sorted list") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int run = 0; run < 20; ++run) {
    ints fired;
    timer_queue queue;
    std::vector<std::unique_ptr<actor>> timers;
    std::vector<int> due(40, -1);  // by name; -1: not armed
    for (int i = 0; i < 40; ++i) timers.push_back(std::make_unique<actor>(queue, fired, i));
    int now = 0;
    for (int step = 0; step < 1000; ++step) {
      const int name = below(40);
      const auto place = static_cast<std::size_t>(name);
      switch (below(4)) {
        case 0:
        case 1:
          due[place] = now + below(200);
          queue.arm(timers[place]->t, at(due[place]));
          break;
        case 2:
          due[place] = -1;
          timers[place]->t.cancel();
          break;
        default: {
          now += below(20);
          fired.clear();
          queue.fire_due(at(now));
          // Ordered by time; equal times in any order.
          REQUIRE(std::is_sorted(fired.begin(), fired.end(), [&](int a, int b) {
            return due[static_cast<std::size_t>(a)] < due[static_cast<std::size_t>(b)];
          }));
          ints expected;
          for (int i = 0; i < 40; ++i)
            if (due[static_cast<std::size_t>(i)] >= 0 && due[static_cast<std::size_t>(i)] <= now)
              expected.push_back(i);
          for (const int i : expected) due[static_cast<std::size_t>(i)] = -1;
          std::sort(fired.begin(), fired.end());
          REQUIRE(fired == expected);
        }
      }
      int next = -1;
      for (const int d : due)
        if (d >= 0 && (next < 0 || d < next)) next = d;
      REQUIRE(queue.next() == (next < 0 ? time_point::max() : at(next)));
      REQUIRE(timers[place]->t.armed() == (due[place] >= 0));
    }
  }
}
