// SPDX-License-Identifier: Apache-2.0
// The judgement alone, on possible reports of a kernel.
#include "transport/tcp/heartbeat.hpp"

#include <doctest/doctest.h>

#include <chrono>

using namespace std::chrono_literals;
using tutti::core::duration;
using tutti::core::time_point;
using tutti::transport::health_check;
using tutti::transport::peer_health;
using tutti::transport::tcp::heartbeat;
using tutti::transport::tcp::kernel_view;
using condition = peer_health::condition;

namespace {

// A connection in virtual time: its events, and what its kernel would report.
struct scene {
  explicit scene(std::chrono::milliseconds limit) : judge(limit), period(heartbeat::period(limit)) {}

  heartbeat judge;
  duration period;
  time_point now{1h};
  time_point last_data = now, last_sign = now, last_sent = now;
  std::uint64_t acknowledged = 1000, held = 0;
  unsigned probes = 0;
  bool room = true;
  bool waiting_to_leave = false;
  bool asks_loop = true;
  int questions = 0;

  peer_health check_again(bool after_a_pause = false) {
    kernel_view k;
    k.data_quiet = now - last_data;
    k.quiet = now - std::max(last_sign, last_data);
    k.sent_quiet = now - last_sent;
    k.acknowledged = acknowledged;
    k.held = held;
    k.in_flight = held > 0;
    k.probes = probes;
    k.room = room;
    health_check l{now};
    l.again = after_a_pause;
    l.loop = asks_loop;
    const heartbeat::finding found = judge.examine(l, k, waiting_to_leave);
    if (found.ask) {
      ++questions;
      held += 64;
      last_sent = now;
    }
    return found.health;
  }
  void host_acknowledges() {
    acknowledged += held;
    held = 0;
    probes = 0;
    last_sign = now;
  }
  void loop_answers() {
    host_acknowledges();
    last_data = now;
  }
  // Checks at the usual times until the condition is found, for at most a minute. Returns the time needed.
  template <class Between>
  duration until(condition wanted, Between between) {
    const time_point from = now;
    for (; now - from < 1min; now += period) {
      if (check_again().is == wanted) return now - from;
      between();
    }
    return duration::max();
  }
};

}  // namespace

TEST_SUITE("transport/tcp_heartbeat") {
  TEST_CASE("a peer that answers is responsive, and is asked once a period") {
    scene s(3000ms);
    int looks = 0;
    for (; looks < 200; ++looks, s.now += s.period) {
      CHECK(s.check_again().is == condition::well);
      if (s.held > 0) s.loop_answers();
    }
    CHECK(s.questions >= looks - 1);
    CHECK(s.questions <= looks);
  }

  TEST_CASE("while data arrive no peer is asked") {
    scene s(3000ms);
    for (int i = 0; i < 100; ++i, s.now += s.period) {
      s.last_data = s.now - 5ms;
      CHECK(s.check_again().is == condition::well);
    }
    CHECK(s.questions == 0);
  }

  TEST_CASE("a silent host is detected within the limit, not before") {
    for (const auto limit : {500ms, 1000ms, 3000ms, 20'000ms}) {
      CAPTURE(limit.count());
      scene s(limit);
      s.now += 10min;  // without a question meanwhile
      const duration after = s.until(condition::unresponsive, [&] {
        if (s.held > 0) s.last_sent = s.now;  // repeatedly
      });
      CHECK(after <= limit);
      CHECK(after >= limit / 2);
    }
  }

  TEST_CASE("a host whose process computes or is stopped is never unresponsive") {
    for (const auto limit : {500ms, 3000ms}) {
      CAPTURE(limit.count());
      scene s(limit);
      const duration mute = s.until(condition::not_answering, [&] { s.host_acknowledges(); });
      CHECK(mute <= 2 * s.period);
      for (int i = 0; i < 2000; ++i, s.now += s.period) {
        s.host_acknowledges();  // of questions, or of the kernel's own probes
        const peer_health v = s.check_again();
        CHECK(v.is == condition::not_answering);
        CHECK(v.since <= s.now - time_point(1h));
      }
      // Unread questions do not fill the peer's window.
      CHECK(s.questions <= 512);
      s.loop_answers();
      s.now += s.period;
      CHECK(s.check_again().is == condition::well);
    }
  }

  TEST_CASE("with a full window the host answers sometimes, and the question cannot leave") {
    scene s(3000ms);
    s.waiting_to_leave = true;
    s.room = false;
    s.held = 1 << 20;
    for (int i = 0; i < 400; ++i, s.now += s.period) {
      // Probes are seconds apart, and one is in flight at the time of the check.
      s.probes = i % 20 < 18 ? 0 : 1;
      if (s.probes == 0) s.last_sent = s.last_sign = s.now - (i % 20) * s.period;
      CHECK(s.check_again().is != condition::unresponsive);
    }
    // Then its host dies.
    const duration after =
        s.until(condition::unresponsive, [&] { s.probes = s.now - s.last_sign > 2s ? 2 : 1; });
    CHECK(after <= 4s);
  }

  TEST_CASE("a question behind data in a slow network is in flight, not unanswered") {
    scene s(3000ms);
    s.held = 4 << 20;
    s.check_again();
    s.now += s.period;
    s.last_data -= 1s;
    for (int i = 0; i < 100; ++i, s.now += s.period) {
      s.acknowledged += 1000;
      s.held -= 1000;
      s.last_sign = s.now;
      const peer_health v = s.check_again();
      CHECK(v.since <= s.period);
    }
  }

  TEST_CASE("only the host is asked if other ranks may send the awaited message") {
    scene s(3000ms);
    s.asks_loop = false;
    for (int i = 0; i < 100; ++i, s.now += s.period) {
      s.last_sign = s.now;  // keepalive
      CHECK(s.check_again().is == condition::well);
    }
    CHECK(s.questions == 0);
    const duration after =
        s.until(condition::unresponsive, [&] { s.probes = s.now - s.last_sign > 1s ? 1 : 0; });
    CHECK(after <= 3s);
  }

  TEST_CASE("time that this side has missed does not count against the peer") {
    scene s(3000ms);
    s.check_again();
    s.now += 30s;
    CHECK(s.check_again(true).is == condition::well);
    s.now += s.period;
    CHECK(s.check_again().is != condition::unresponsive);
  }

  TEST_CASE("without a limit no host is unresponsive") {
    scene s(0ms);
    const duration after = s.until(condition::unresponsive, [&] { s.probes = 3; });
    CHECK(after == duration::max());
  }
}
