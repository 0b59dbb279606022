// SPDX-License-Identifier: Apache-2.0
// The loop's interface for devices: it polls while awake, is woken by notify() while asleep, and delivers
// completions.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <chrono>
#include <thread>
#include <tutti/extend/poller.hpp>
#include <tutti/tutti.hpp>

namespace {

using namespace std::chrono_literals;

// A result that another thread produces.
class parcel : public tutti::extend::poller {
 public:
  using poller::poller;
  ~parcel() override { *gone = true; }

  struct awaiter {
    parcel& of;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) const noexcept {
      of.waiting = h;
      of.begin_wait();
    }
    void await_resume() const noexcept {}
  };
  awaiter arrival() noexcept { return {*this}; }

  std::atomic<bool> here{false};
  std::coroutine_handle<> waiting;
  int armed = 0;
  int looks = 0;
  bool wait_by_polling = false;
  bool* gone = &unseen;
  bool unseen = false;

 protected:
  bool poll() noexcept override {
    if (!waiting || !here.load(std::memory_order_acquire)) return false;
    deliver_soon();
    return true;
  }
  bool arm() noexcept override {
    ++armed;
    if (wait_by_polling) arm_timer(1ms);
    return waiting && here.load(std::memory_order_acquire);
  }
  void disarm() noexcept override {}
  void timer_fired() noexcept override { ++looks; }
  void deliver() noexcept override {
    if (!waiting) return;
    end_wait();
    tutti::detail::resume_bounded(std::exchange(waiting, {}));
  }
};

tutti::task<> notified_from_a_thread(tutti::communicator world) {
  parcel p(world);
  for (int i = 0; i < 20; ++i) {
    p.here = false;
    std::thread other([&p, i] {
      if (i % 2 == 0)
        std::this_thread::sleep_for(1ms);  // usually long enough for the loop to sleep; either case is valid
      p.here.store(true, std::memory_order_release);
      p.notify();
    });
    co_await p.arrival();
    TUTTI_EXPECT(p.here);
    other.join();
  }
}

tutti::task<> found_by_polling(tutti::communicator world) {
  parcel p(world);
  p.wait_by_polling = true;
  std::thread other([&p] {
    std::this_thread::sleep_for(5ms);
    p.here.store(true, std::memory_order_release);  // without a notification
  });
  co_await p.arrival();
  TUTTI_EXPECT(p.looks > 0);
  other.join();
}

tutti::task<> without_a_world(tutti::runtime* rt) {
  parcel p(*rt);
  std::thread other([&p] {
    p.here.store(true, std::memory_order_release);
    p.notify();
  });
  co_await p.arrival();
  other.join();
}

tutti::task<> destroyed_while_pending(tutti::communicator world) {
  bool gone = false;
  {
    parcel p(world);
    p.gone = &gone;
    p.here = true;
    const auto waits = [](parcel* q) -> tutti::task<> { co_await q->arrival(); };
    tutti::scope work;
    work.spawn(waits(&p));
    static_cast<void>(work.running());
  }
  TUTTI_EXPECT(gone);
  co_await world.barrier();
}

}  // namespace

TEST_CASE("a poller is woken by another thread") { tutti::run_local(1, notified_from_a_thread); }

TEST_CASE("a poller without notifications is polled by a timer") { tutti::run_local(1, found_by_polling); }

TEST_CASE("a poller on a runtime without a world keeps it running") {
  tutti::runtime rt;
  rt.run(without_a_world(&rt));
}

TEST_CASE("a poller may be destroyed with a pending completion") {
  tutti::run_local(2, destroyed_while_pending);
}

TEST_CASE("an empty communicator and another thread have no loop for a poller") {
  const auto text = [](const auto& make) { return tutti::test::failure_of(make); };
  CHECK(text([] { parcel p{tutti::communicator()}; }).code == tutti::errc::invalid_argument);
  tutti::run_local(1, [](tutti::communicator world) -> tutti::task<> {
    tutti::test::failure seen;
    std::thread other([&world, &seen] { seen = tutti::test::failure_of([&world] { parcel p(world); }); });
    other.join();
    TUTTI_EXPECT(seen.code == tutti::errc::wrong_thread);
    co_return;
  });
}
