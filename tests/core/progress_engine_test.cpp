// SPDX-License-Identifier: Apache-2.0
// The engine alone, with a simulated clock.
#include "core/progress_engine.hpp"

#include <doctest/doctest.h>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti::core;
using tutti::errc;

namespace {

using ints = std::vector<int>;

class manual_clock final : public platform {
 public:
  time_point now() noexcept override { return now_; }
  std::uint64_t random() noexcept override { return 4; }
  void advance(duration d) { now_ += d; }

 private:
  time_point now_{};
};

struct step : completion {
  explicit step(std::function<void()> f) : deed(std::move(f)) {
    user = this;
    on_done = [](completion& a) noexcept { static_cast<step*>(a.user)->deed(); };
  }
  std::function<void()> deed;
};

struct scripted : source {
  std::function<bool()> on_poll = [] { return false; };
  std::function<bool()> on_arm = [] { return false; };
  int polls = 0, arms = 0, disarms = 0;
  bool poll() noexcept override {
    ++polls;
    return on_poll();
  }
  bool arm() noexcept override {
    ++arms;
    return on_arm();
  }
  void disarm() noexcept override { ++disarms; }
};

struct fixture {
  manual_clock clock;
  progress_engine e{clock};
  ints log;
};

}  // namespace

TEST_CASE_FIXTURE(fixture, "poll delivers completions in order, not the code that completes them") {
  step a([&] { log.push_back(1); }), b([&] { log.push_back(2); });
  e.complete(a);
  e.complete(b);
  CHECK(log.empty());
  CHECK(e.poll());
  CHECK(log == ints{1, 2});
  CHECK_FALSE(e.poll());
}

TEST_CASE_FIXTURE(fixture, "a completion may complete others, cancel them, and destroy itself") {
  step late([&] { log.push_back(3); });
  step cancelled([&] { log.push_back(99); });
  auto own = std::make_unique<step>([] {});
  own->deed = [&] {
    log.push_back(1);
    static_cast<tutti::base::list_hook<ready_tag>&>(cancelled).unlink();
    e.complete(late);
    own.reset();
  };
  step second([&] { log.push_back(2); });
  e.complete(*own);
  e.complete(cancelled);
  e.complete(second);
  while (e.poll()) {
  }
  CHECK(log == ints{1, 2, 3});
  CHECK_FALSE(own);
}

TEST_CASE_FIXTURE(fixture, "one poll delivers a bounded number: chains of completions starve no source") {
  int left = 10'000;
  std::unique_ptr<step> breeder;
  breeder = std::make_unique<step>([&] {
    if (--left > 0) e.complete(*breeder);
  });
  scripted s;
  e.add(s);
  e.complete(*breeder);
  int rounds = 0;
  while (e.poll()) ++rounds;
  CHECK(left == 0);
  CHECK(rounds >= 50);
  CHECK(s.polls >= rounds);
}

TEST_CASE_FIXTURE(fixture, "one poll polls every source once, and delivers what it completes") {
  step done([&] { log.push_back(7); });
  scripted busy, idle;
  busy.on_poll = [&] {
    if (busy.polls == 1) e.complete(done);
    return busy.polls == 1;
  };
  e.add(busy);
  e.add(idle);
  CHECK(e.poll());
  CHECK(log == ints{7});
  CHECK(busy.polls == 1);
  CHECK(idle.polls == 1);
  CHECK_FALSE(e.poll());
  e.remove(busy);
  e.poll();
  CHECK(busy.polls == 2);
  CHECK(idle.polls == 3);
}

TEST_CASE_FIXTURE(fixture, "sources may be added and removed while they are polled and armed") {
  std::deque<scripted> sources(6);
  scripted added;
  sources[1].on_poll = [&] {
    e.remove(sources[1]);
    e.add(added);
    return true;
  };
  sources[2].on_arm = [&] {
    e.remove(sources[2]);
    e.remove(sources[5]);
    for (scripted& s : sources)
      if (&s != &sources[2] && &s != &sources[5] && &s != &sources[1])
        e.add(s);  // more than the reserved memory
    return false;
  };
  for (scripted& s : sources) e.add(s);
  CHECK(e.poll());
  CHECK(sources[0].polls == 1);
  CHECK(added.polls == 1);
  CHECK_FALSE(e.arm());
  CHECK(sources[0].arms >= 1);
  CHECK(sources[5].arms == 0);
  const int polls_before = sources[2].polls;
  e.poll();
  CHECK(sources[1].polls == 1);
  CHECK(sources[2].polls == polls_before);
  CHECK(sources[0].polls > 1);
}

TEST_CASE_FIXTURE(fixture, "before sleep all sources are armed, and an event disarms them all") {
  scripted a, b;
  e.add(a);
  e.add(b);
  CHECK_FALSE(e.arm());
  CHECK(a.arms + b.arms == 2);
  CHECK(a.disarms + b.disarms == 0);
  e.disarm();
  CHECK(a.disarms + b.disarms == 2);

  a.on_arm = [] { return true; };
  CHECK(e.arm());
  CHECK(b.arms == 2);
  CHECK(a.disarms + b.disarms == 4);

  a.on_arm = [] { return false; };
  step queued([] {});
  e.complete(queued);
  CHECK(e.arm());
  e.poll();
  // Completed by the last check itself.
  b.on_arm = [&] {
    e.complete(queued);
    return false;
  };
  CHECK(e.arm());
  e.poll();
}

TEST_CASE_FIXTURE(fixture, "waits are counted, and sources are told of each") {
  int told = 0;
  e.set_on_wait([](void* p) noexcept { ++*static_cast<int*>(p); }, &told);
  CHECK_FALSE(e.waiting());
  e.begin_wait();
  e.begin_wait();
  CHECK(e.waiting());
  CHECK(told == 2);
  e.end_wait();
  CHECK(e.waiting());
  e.end_wait();
  CHECK_FALSE(e.waiting());
}

TEST_CASE_FIXTURE(fixture, "the first undelivered completion is reported, because the loop may be parked") {
  int told = 0;
  e.set_on_wait([](void* p) noexcept { ++*static_cast<int*>(p); }, &told);
  completion first, second;
  for (completion* a : {&first, &second}) a->on_done = [](completion&) noexcept {};
  e.complete(first);
  CHECK(told == 1);
  e.complete(second);
  CHECK(told == 1);
  e.poll();
  e.complete(first);
  CHECK(told == 2);
  e.poll();
}

TEST_CASE_FIXTURE(fixture, "a tick moves the engine's time and fires timers") {
  timer t([](void* l) noexcept { static_cast<ints*>(l)->push_back(1); }, &log);
  const time_point begin = e.now();
  e.timers().arm(t, begin + 10ms);
  clock.advance(9ms);
  CHECK(e.now() == begin);
  CHECK_FALSE(e.tick());
  CHECK(e.now() == begin + 9ms);
  clock.advance(1ms);
  CHECK(e.tick());
  CHECK(log == ints{1});
}

TEST_CASE_FIXTURE(fixture, "a failure carries its code and its text, which can be taken once") {
  step a([] {});
  CHECK(a.failure() == errc::success);
  CHECK(a.take_text().empty());
  a.set_failure(errc::truncated, "too long");
  CHECK(a.failure() == errc::truncated);
  CHECK(a.take_text() == "too long");
}

TEST_CASE("the real platform has a running clock and random numbers that differ") {
  platform& real = platform::real();
  const time_point a = real.now();
  CHECK(real.now() >= a);
  CHECK(real.random() != real.random());
}
