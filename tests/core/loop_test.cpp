// SPDX-License-Identifier: Apache-2.0
// The loop on an io_context: when it sleeps, what wakes it, and when run() returns. On both kinds of loop.
#include "core/loop.hpp"

#include "base/unique_fd.hpp"
#include "core/each_loop.hpp"
#include "core/mailbox.hpp"
#include "support/local_world.hpp"
#include "support/run_task.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using test::mailbox;
namespace asio = boost::asio;

namespace {

using std::chrono::steady_clock;

core::spin_policy spinning(std::chrono::nanoseconds budget, bool yields = false) {
  core::spin_policy p;
  p.budget = budget;
  p.yields = yields;
  return p;
}

// A loop with a mailbox.
struct listener {
  asio::io_context context{1};
  core::loop loop{context};
  mailbox mail;

  void begin() {
    loop.bind_to_this_thread();
    loop.engine().add(mail);
    loop.backend().watch_doorbell(mail.doorbell());
    loop.hold();
  }
  void end() {
    loop.engine().remove(mail);
    loop.backend().unwatch_doorbell(mail.doorbell());
    loop.release();
  }
  void run_until_parked() {
    loop.wake();
    const auto parks = loop.counters().parks;
    test::run_until(context, [&] { return loop.counters().parks > parks; });
  }
};

// Waits for condition() on another thread. Returns false after a long time.
template <class Condition>
bool soon(Condition condition) {
  const auto end = steady_clock::now() + 20s;
  while (!condition()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::chrono::microseconds cpu_time_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace

// ---- when run() returns ----

TEST_CASE("run() returns when no hold is left, and not before") {
  test::on_each_loop([] {
    asio::io_context context;
    core::loop loop(context);
    loop.wake();
    CHECK(context.run() == 0);  // no hold: nothing was posted
    context.restart();

    loop.hold();
    loop.hold();
    context.run_for(20ms);
    CHECK_FALSE(context.stopped());
    asio::post(context, [&] { loop.release(); });
    context.run_for(20ms);
    CHECK_FALSE(context.stopped());
    asio::post(context, [&] { loop.release(); });
    context.run_for(20s);
    CHECK(context.stopped());
  });
}

TEST_CASE("the loop may be released, held again and released, parked or not") {
  test::on_each_loop([] {
    listener l;
    l.begin();
    for (int round = 1; round <= 100; ++round) {
      if (round % 2 == 0) l.run_until_parked();
      l.loop.release();
      if (round % 3 == 0) {
        l.context.run_for(20s);
        REQUIRE(l.context.stopped());
        l.context.restart();
      }
      l.loop.hold();
      l.mail.put(round);
      test::run_until(l.context, [&] { return l.mail.seen() == round; });
    }
    l.end();
    l.context.run_for(20s);
    CHECK(l.context.stopped());
  });
}

TEST_CASE("stop() ends run() while the loop spins") {
  test::on_each_loop([] {
    listener l;
    l.begin();
    l.loop.set_spin(spinning(1h));
    l.loop.engine().begin_wait();
    l.mail.on_mail = [&](int) {
      l.loop.leave_turn();
      l.context.stop();
    };
    std::thread other([&] { l.mail.put(1); });
    l.context.run();
    other.join();
    CHECK(l.mail.seen() == 1);
    // From a handler of the user, or from another thread.
    l.context.restart();
    asio::post(l.context, [&] { l.context.stop(); });
    l.context.run();
    l.context.restart();
    std::thread stopper([&] { l.context.stop(); });
    l.context.run();
    stopper.join();
    l.loop.engine().end_wait();
    l.end();
  });
}

TEST_CASE("handlers of a destroyed loop do nothing") {
  test::on_each_loop([] {
    asio::io_context context;
    {
      core::loop loop(context);
      loop.hold();  // a turn is posted
    }
    CHECK_NOTHROW(context.run_for(20s));
    CHECK(context.stopped());
    context.restart();
    {
      core::loop loop(context);
      loop.hold();
      test::run_until(context, [&] { return loop.counters().parks > 0; });  // it waits on its descriptor
    }
    CHECK_NOTHROW(context.run_for(20s));
    CHECK(context.stopped());
    context.restart();
    core::timer fires([](void* n) noexcept { ++*static_cast<int*>(n); }, nullptr);
    {
      core::loop loop(context);
      loop.hold();
      loop.engine().timers().arm(fires, core::clock::now() + 1h);
      test::run_until(context, [&] { return loop.counters().parks > 0; });
    }
    CHECK_FALSE(fires.armed());
    CHECK_NOTHROW(context.run_for(20s));
    CHECK(context.stopped());
  });
}

TEST_CASE("the loop belongs to the thread that runs it") {
  listener l;
  CHECK_FALSE(l.loop.on_this_thread());
  l.loop.bind_to_this_thread();
  CHECK(l.loop.on_this_thread());
  CHECK(core::loop::current() == &l.loop);
  bool elsewhere = true;
  std::thread([&] { elsewhere = l.loop.on_this_thread() || core::loop::current() != nullptr; }).join();
  CHECK_FALSE(elsewhere);
  bool inside = false;
  std::thread runner([&] {
    l.begin();
    asio::post(l.context, [&] {
      inside = l.loop.on_this_thread() && core::loop::current() == &l.loop;
      l.end();
    });
    l.context.run_for(20s);
  });
  runner.join();
  CHECK(inside);
  CHECK_FALSE(l.loop.on_this_thread());
}

// ---- when it sleeps ----

TEST_CASE("a parked loop takes no turns and no processor time") {
  test::on_each_loop([] {
    for (const bool waiting : {false, true}) {
      CAPTURE(waiting);
      listener l;
      l.begin();
      if (waiting) l.loop.engine().begin_wait();  // spins for its budget first
      l.run_until_parked();
      l.context.run_for(20ms);
      const auto turns = l.loop.counters().turns;
      const auto before = cpu_time_of_this_thread();
      l.context.run_for(300ms);
      CHECK(l.loop.counters().turns == turns);
      CHECK(cpu_time_of_this_thread() - before < 30ms);
      // It still works.
      l.mail.put(1);
      test::run_until(l.context, [&] { return l.mail.seen() == 1; });
      if (waiting) l.loop.engine().end_wait();
      l.end();
    }
  });
}

TEST_CASE("a wait that begins makes a parked loop spin") {
  test::on_each_loop([] {
    listener l;
    l.begin();
    l.run_until_parked();
    const auto turns = l.loop.counters().turns;
    asio::post(l.context, [&] { l.loop.engine().begin_wait(); });
    test::run_until(l.context, [&] { return l.loop.counters().turns > turns; });
    l.loop.engine().end_wait();
    l.end();
  });
}

// ---- what wakes it ----

TEST_CASE("every notification of a doorbell wakes a parked loop") {
  test::on_each_loop([] {
    listener l;
    std::atomic<bool> finished{false};
    std::thread runner([&] {
      l.begin();
      l.context.run_for(60s);
      finished = true;
    });
    int told = 0;
    while (told < 1000) {
      ++told;
      l.mail.put(told, told % 2 == 0);
      if (!soon([&] { return l.mail.seen() == told || finished; }) || finished) break;
      if (told % 3 != 0 && !soon([&] { return l.mail.armed(); })) break;
    }
    asio::post(l.context, [&] { l.end(); });
    runner.join();
    CHECK(told == 1000);
    CHECK(l.mail.seen() == 1000);
    CHECK(l.loop.counters().parks > 0);  // it did sleep in between
  });
}

TEST_CASE("every post from another thread wakes a parked loop") {
  test::on_each_loop([] {
    listener l;
    std::atomic<int> seen{0};
    std::thread runner([&] {
      l.begin();
      l.context.run_for(60s);
    });
    int sent = 0;
    while (sent < 1000) {
      ++sent;
      asio::post(l.context, [&, sent] {
        seen = sent;
        if (sent % 2 == 0) l.loop.wake();  // and parks again
      });
      if (!soon([&] { return seen == sent; })) break;
      if (sent % 3 != 0 && !soon([&] { return l.mail.armed(); })) break;
    }
    asio::post(l.context, [&] { l.end(); });
    runner.join();
    CHECK(sent == 1000);
    CHECK(seen == 1000);
    CHECK(l.loop.counters().parks > 0);
  });
}

TEST_CASE("every event of a watched descriptor wakes a parked loop") {
  test::on_each_loop([] {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const base::unique_fd near(ends[0]);
    const base::unique_fd far(ends[1]);
    struct reader final : core::watcher {
      int fd = -1;
      std::atomic<int> bytes{0};
      void on_ready(bool readable, bool) noexcept override {
        char some[64];
        if (!readable) return;
        for (ssize_t n; (n = ::read(fd, some, sizeof some)) > 0;) bytes += static_cast<int>(n);
      }
    } watcher;
    watcher.fd = near.get();
    listener l;
    std::thread runner([&] {
      l.begin();
      const core::backend::handle h = l.loop.backend().watch(near.get(), watcher);
      l.context.run_for(60s);
      l.loop.backend().unwatch(h);
    });
    int sent = 0;
    while (sent < 1000) {
      if (::write(far.get(), "x", 1) != 1) break;
      ++sent;
      if (!soon([&] { return watcher.bytes == sent; })) break;
      if (sent % 3 != 0 && !soon([&] { return l.mail.armed(); })) break;
    }
    asio::post(l.context, [&] { l.end(); });
    runner.join();
    CHECK(sent == 1000);
    CHECK(watcher.bytes == 1000);
    CHECK(l.loop.counters().parks > 0);
  });
}

namespace {

// One side of a ball game between two loops.
struct player {
  listener l;
  player* other = nullptr;
  std::mt19937 random;
  int last = 0;

  player(unsigned seed, int games) : random(seed), last(games) {
    l.mail.on_mail = [this](int ball) { hit(ball); };
  }
  void hit(int ball) {
    // Mostly no spin budget, sometimes one about as long as the other side's turn.
    const unsigned dice = random() % 8;
    l.loop.set_spin(spinning(std::chrono::nanoseconds(dice < 4 ? 0 : random() % 60'000), dice == 7));
    // Returns the ball at once, or at any point of the other side's transition to sleep.
    const auto until =
        steady_clock::now() + std::chrono::nanoseconds(random() % 2 == 0 ? 0 : random() % 60'000);
    while (steady_clock::now() < until) {
    }
    if (ball < last) other->l.mail.put(ball + 1);
    if (ball >= last - 1) {
      l.loop.engine().end_wait();
      l.end();
    }
  }
  void run() {
    l.begin();
    l.loop.engine().begin_wait();
    l.context.run_for(60s);
  }
};

}  // namespace

TEST_CASE("two loops that exchange a ball lose no wake-up, with any spin budget") {
  test::on_each_loop([] {
    constexpr int games = 20'000;
    player a(1, games), b(2, games);
    a.other = &b;
    b.other = &a;
    std::thread first([&] { a.run(); });
    std::thread second([&] { b.run(); });
    a.l.mail.put(1);
    first.join();
    second.join();
    CHECK(std::max(a.l.mail.seen(), b.l.mail.seen()) == games);
    CHECK(a.l.loop.counters().parks + b.l.loop.counters().parks > 100);
  });
}

TEST_CASE("timers wake a parked loop when they are due, not before") {
  test::on_each_loop([] {
    listener l;
    l.begin();
    l.run_until_parked();
    struct alarm {
      core::time_point fired{};
      core::timer t{[](void* self) noexcept { static_cast<alarm*>(self)->fired = core::clock::now(); }, this};
    };
    std::vector<std::unique_ptr<alarm>> alarms;
    std::vector<core::time_point> due;
    for (int i = 0; i < 20; ++i) {
      alarms.push_back(std::make_unique<alarm>());
      due.push_back(core::clock::now() + std::chrono::milliseconds(i * 7 % 20));
      l.loop.engine().timers().arm(alarms.back()->t, due.back());
    }
    l.loop.wake();
    for (std::size_t i = 0; i < alarms.size(); ++i) {
      test::run_until(l.context, [&] { return alarms[i]->fired != core::time_point{}; });
      CHECK(alarms[i]->fired >= due[i]);
    }

    // A distant timer, then a nearer one, then the nearer one is cancelled.
    alarm far, near;
    l.loop.engine().timers().arm(far.t, core::clock::now() + 1h);
    l.loop.wake();
    l.run_until_parked();
    l.loop.engine().timers().arm(near.t, core::clock::now() + 5ms);
    l.loop.wake();
    test::run_until(l.context, [&] { return near.fired != core::time_point{}; });
    l.loop.engine().timers().arm(near.t, core::clock::now() + 5ms);
    l.loop.wake();
    l.run_until_parked();
    near.t.cancel();
    near.fired = {};
    l.context.run_for(20ms);
    CHECK(near.fired == core::time_point{});
    CHECK(far.t.armed());
    l.end();
  });
}

// ---- a fair share for Asio ----

TEST_CASE("Asio's handlers run while the engine is always busy, and while it spins") {
  test::on_each_loop([] {
    struct never_idle final : core::source {
      std::uint64_t polls = 0;
      bool poll() noexcept override {
        ++polls;
        return true;
      }
    } busy;
    for (const bool spin : {false, true}) {
      CAPTURE(spin);
      listener l;
      l.begin();
      l.loop.set_spin(spinning(1h));
      l.loop.engine().begin_wait();
      if (!spin) l.loop.engine().add(busy);
      bool timer_fired = false, posted = false;
      asio::steady_timer timer(l.context, 2ms);
      timer.async_wait([&](boost::system::error_code) { timer_fired = true; });
      std::thread other([&] { asio::post(l.context, [&] { posted = true; }); });
      test::run_until(l.context, [&] { return timer_fired && posted; });
      other.join();
      if (!spin) l.loop.engine().remove(busy);
      l.loop.engine().end_wait();
      l.end();
    }
  });
}

TEST_CASE("the engine's own timers fire while it is busy, and while it spins") {
  test::on_each_loop([] {
    struct until_told final : core::source {
      core::loop* loop = nullptr;
      bool told = false, busy = true;
      bool poll() noexcept override { return busy && !told; }
    } work;
    for (const bool busy : {true, false}) {
      CAPTURE(busy);
      work.told = false;
      work.busy = busy;
      listener l;
      l.begin();
      l.loop.set_spin(spinning(1h));
      l.loop.engine().begin_wait();
      l.loop.engine().add(work);
      work.loop = &l.loop;
      core::timer t(
          [](void* self) noexcept {
            auto& w = *static_cast<until_told*>(self);
            w.told = true;
            w.loop->leave_turn();  // it would keep spinning
          },
          &work);
      l.loop.engine().timers().arm(t, core::clock::now() + 3ms);
      test::run_until(l.context, [&] { return work.told; });
      l.loop.engine().remove(work);
      l.loop.engine().end_wait();
      l.end();
    }
  });
}

// ---- the user's io_context ----

namespace {

// Started by hand, like in a program with its own loop.
struct detached {
  struct promise_type {
    detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

detached join_and_keep(runtime* rt, std::optional<communicator>* world) {
  *world = co_await init(*rt, test::alone());
  co_await (*world)->barrier();
}

task<int> talk_to_itself(communicator world, int times) {
  int sum = 0;
  for (int i = 0; i < times; ++i) {
    int got = 0;
    request receiving = world.irecv(got, 0);
    co_await world.send(i, 0);
    co_await receiving;
    sum += got;
  }
  co_return sum;
}
detached join_talk_and_leave(runtime* rt, int* sum) {
  communicator world = co_await init(*rt, test::alone());
  *sum = co_await talk_to_itself(world, 100);
}

}  // namespace

TEST_CASE("on the user's io_context, run() returns when the last communicator has been destroyed") {
  test::on_each_loop([] {
    asio::io_context context(1);
    runtime rt(context);
    std::optional<communicator> world;
    join_and_keep(&rt, &world);
    context.run_for(30ms);
    REQUIRE(world);
    REQUIRE(world->size() == 1);
    CHECK_FALSE(context.stopped());  // a later communication is still possible
    std::optional<communicator> copy = world;
    world.reset();
    context.run_for(20ms);
    CHECK_FALSE(context.stopped());
    copy.reset();
    context.run_for(20s);
    CHECK(context.stopped());
  });
}

TEST_CASE("the user's handlers run as well, and several runtimes share one io_context") {
  test::on_each_loop([] {
    asio::io_context context(1);
    runtime first(context), second(context);
    int ticks = 0, a = 0, b = 0;
    asio::steady_timer timer(context, 1ms);
    std::function<void(boost::system::error_code)> tick = [&](boost::system::error_code) {
      if (++ticks == 10) return;
      timer.expires_after(1ms);
      timer.async_wait(tick);
    };
    timer.async_wait(tick);
    join_talk_and_leave(&first, &a);
    join_talk_and_leave(&second, &b);
    context.run_for(30s);
    CHECK(context.stopped());
    CHECK(ticks == 10);
    CHECK(a == 4950);
    CHECK(b == 4950);
  });
}

TEST_CASE("a runtime's io_context may be run repeatedly") {
  test::on_each_loop([] {
    runtime rt;
    const auto main = [](runtime* r) -> task<int> {
      communicator world = co_await init(*r, test::alone());
      co_return co_await talk_to_itself(world, 10);
    };
    for (int i = 0; i < 20; ++i) REQUIRE(rt.run(main(&rt)) == 45);
  });
}
