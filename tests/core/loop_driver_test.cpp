// SPDX-License-Identifier: Apache-2.0
// A loop that threads share: a waiting thread drives it. Attended operations progress without one.
#include "core/loop_driver.hpp"

#include "core/loop.hpp"
#include "core/mailbox.hpp"
#include "core/running_task.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <thread>
#include <tutti/task.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;

namespace {

const core::time_point in_time = core::clock::now() + 1min;

// Records which mail has arrived, and on which thread.
struct listener {
  boost::asio::io_context context;
  core::loop loop{context};
  core::loop_driver driver{loop};
  test::mailbox mail;
  std::atomic<int> seen{0};
  std::atomic<std::thread::id> on;

  listener() {
    const core::loop_driver::entry here(driver);
    mail.on_mail = [this](int value) {
      seen = value;
      on = std::this_thread::get_id();
      driver.notify();
    };
    driver.loop().engine().add(mail);
    driver.loop().backend().watch_doorbell(mail.doorbell());
  }
  ~listener() {
    const core::loop_driver::entry here(driver);
    driver.loop().engine().remove(mail);
    driver.loop().backend().unwatch_doorbell(mail.doorbell());
  }
  bool wait_for(int value, core::time_point deadline = in_time) {
    return driver.run_until([this, value] { return seen >= value; }, deadline);
  }
};

task<> pause_and_set(core::loop_driver& d, std::chrono::milliseconds how_long, std::atomic<bool>& done) {
  co_await core::pause(d.loop(), how_long);
  done = true;
  d.notify();
}

}  // namespace

TEST_CASE("driver: a waiting thread receives its mail while it spins and while it sleeps") {
  listener l;
  for (int i = 1; i <= 200; ++i) {
    std::thread sender([&l, i] {
      if (i % 2 == 0)
        while (!l.mail.armed()) std::this_thread::yield();
      l.mail.put(i);
    });
    CHECK(l.wait_for(i));
    sender.join();
  }
  CHECK_FALSE(l.wait_for(1000, core::clock::now() + 1ms));
  CHECK(l.wait_for(200));
}

TEST_CASE("driver: threads that wait at the same time all receive their mail, whichever drives") {
  listener l;
  constexpr int threads = 4, mails = 400;
  std::atomic<int> in_vain{0};
  std::vector<std::thread> waiting;
  for (int t = 0; t < threads; ++t)
    waiting.emplace_back([&l, &in_vain, t] {
      for (int i = t; i <= mails; i += t + 1) in_vain += l.wait_for(i) ? 0 : 1;
    });
  for (int i = 1; i <= mails; ++i) {
    l.mail.put(i);
    std::this_thread::yield();
  }
  for (std::thread& t : waiting) t.join();
  CHECK(in_vain == 0);
}

TEST_CASE("driver: other threads start and end operations while a thread sleeps in a wait") {
  listener l;
  std::atomic<bool> ended{false};
  std::thread waiting([&l, &ended] { ended = l.wait_for(1); });
  std::vector<std::thread> others;
  std::atomic<int> done{0};
  for (int t = 0; t < 3; ++t)
    others.emplace_back([&l, &done] {
      for (int i = 0; i < 300; ++i) {
        core::running_task body;
        std::atomic<bool> over{false};
        {
          const core::loop_driver::entry here(l.driver);
          body.start(
              pause_and_set(l.driver, std::chrono::milliseconds(i % 100 == 0 ? 1 : 0), over),
              [](void*, std::exception_ptr) noexcept {}, nullptr);
        }
        done += l.driver.run_until([&over] { return over.load(); }, in_time) ? 1 : 0;
        const core::loop_driver::entry here(l.driver);
        body.stop();
      }
    });
  for (std::thread& t : others) t.join();
  CHECK(done == 900);
  CHECK_FALSE(ended);
  l.mail.put(1);
  waiting.join();
  CHECK(ended);
}

TEST_CASE("driver: attended operations progress while no thread waits") {
  listener l;
  {
    const core::loop_driver::entry here(l.driver);
    l.driver.attend(1, true);
  }
  for (int i = 1; i <= 100; ++i) {
    l.mail.put(i);
    const auto end = core::clock::now() + 1min;
    while (l.seen < i && core::clock::now() < end) std::this_thread::yield();
    REQUIRE(l.seen == i);
    CHECK(l.on.load() != std::this_thread::get_id());
    // A call in between takes the loop away from the thread and returns it.
    if (i % 3 == 0) CHECK(l.wait_for(i - 1));
    if (i % 3 == 1) CHECK_FALSE(l.wait_for(i + 1, core::clock::now() + 100us));
  }
  const core::loop_driver::entry here(l.driver);
  l.driver.attend(-1);
}

TEST_CASE("driver: mail without a waiting thread is processed soon after the calls have ended") {
  listener l;
  l.mail.put(1);
  CHECK(l.wait_for(1));
  l.mail.put(2);
  const auto end = core::clock::now() + 1min;
  while (l.seen < 2 && core::clock::now() < end) std::this_thread::yield();
  CHECK(l.seen == 2);
}

TEST_CASE("driver: a forked child gets the error that the loop is its parent's") {
  TUTTI_NEEDS_A_KERNEL("fork a process with threads");
  listener l;
  test::child forked([&l](const auto&) {
    const auto refused = test::failure_of([&l] { l.wait_for(1); });
    return refused.code == errc::wrong_thread && refused.says("forked") ? 0 : 1;
  });
  CHECK(forked.end() == 0);
  l.mail.put(1);
  CHECK(l.wait_for(1));
}

TEST_CASE("driver: after a wait that ended in vain its thread goes on at once, although it slept") {
  listener l;
  int late = 0;
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(90ms);  // until it sleeps for as long as it ever does, for the next 30 ms
    CHECK_FALSE(l.wait_for(1, core::clock::now() + 5ms));
    const auto before = core::clock::now();
    while (!l.mail.armed() && core::clock::now() < before + 1min) std::this_thread::yield();
    late += core::clock::now() - before > 10ms ? 1 : 0;
  }
  CHECK(late < 7);  // on a busy machine a thread may wait for a core
}
