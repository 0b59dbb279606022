// SPDX-License-Identifier: Apache-2.0
// Streams and the host: reaching a point, copies, gates, lifetimes and failures, on every test device.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <tutti/tutti.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::bench;
using tutti::test::on_each_backend;
namespace gpu = tutti::gpu;

std::vector<int> numbers(std::size_t n, int first = 0) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

task<> there_and_back(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  co_await s.reached();  // an empty stream
  for (const std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
    const std::vector<int> in = numbers(n, 7);
    std::vector<int> out(n, -1);
    gpu::device_buffer<int> a(dev, n), b(dev, n);
    TUTTI_EXPECT(dev.describe(a.data()).kind == gpu::memory_kind::device);
    TUTTI_EXPECT(dev.describe(in.data()).kind == gpu::memory_kind::host);
    co_await s.upload(a, in);
    tutti::request moving = tutti::start(s.copy(b, a));
    const tutti::status got = co_await s.download(out, b);
    TUTTI_EXPECT(got.bytes == n * sizeof(int));
    TUTTI_EXPECT(out == in);
    TUTTI_EXPECT(moving.done() || world.size() > 0);
    co_await moving;
    gpu::pinned_buffer<int> pinned(dev, n);
    TUTTI_EXPECT(dev.describe(pinned.data()).kind == gpu::memory_kind::pinned);
    co_await s.fill(b, std::byte{0x11});
    co_await s.download(pinned, b);
    TUTTI_EXPECT(pinned[n - 1] == 0x11111111);
    pinned[0] = 5;
    co_await s.upload(b, pinned);
    co_await s.download(out, b);
    TUTTI_EXPECT(out[0] == 5);
  }
}

task<> uploads_take_a_copy(communicator world, bench* on) {
  if (!on->pause) co_return;  // a GPU cannot be paused
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 4096);
  std::vector<int> in = numbers(4096);
  on->pause(true);
  tutti::request w = tutti::start(s.upload(a, in));
  std::fill(in.begin(), in.end(), -1);  // allowed at once
  TUTTI_EXPECT(!w.done());
  on->pause(false);
  co_await w;
  co_await s.download(in, a);
  TUTTI_EXPECT(in == numbers(4096));
}

task<> dropped_downloads_do_not_write(communicator world, bench* on) {
  if (!on->pause) co_return;  // a GPU cannot be paused
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 1024);
  co_await s.fill(a, std::byte{0x22});
  on->pause(true);
  {
    std::vector<int> gone(1024);
    tutti::request w = tutti::start(s.download(gone, a));
    TUTTI_EXPECT(!w.done());
  }
  on->pause(false);
  co_await s.reached();
}

task<> streams_in_order(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream first(dev), second(dev, true);
  gpu::device_buffer<int> a(dev, 50000), b(dev, 50000);
  std::vector<int> out(50000);
  for (int round = 0; round < 20; ++round) {
    const std::vector<int> in = numbers(50000, round);
    tutti::request up = tutti::start(first.upload(a, in));
    second.wait(first);
    tutti::request over = tutti::start(second.copy(b, a));
    first.wait(over);
    tutti::request wiped = tutti::start(first.fill(a, std::byte{0}));
    second.wait(up);
    co_await second.download(out, b);
    TUTTI_EXPECT(out == in);
    first.wait(over);  // waiting for a completed one does nothing
    co_await wiped;
  }
}

task<> one_waiter(gpu::stream s, int* order, int* mine) {
  co_await s.reached();
  *mine = ++*order;
}

task<> waiters_in_order(communicator world, bench* on) {
  if (!on->pause) co_return;  // a GPU cannot be paused
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  on->pause(true);
  gpu::device_buffer<char> a(dev, 64);
  int order = 0;
  std::array<int, 50> mine{};
  tutti::scope all;
  for (int& m : mine) {
    tutti::request w = tutti::start(s.fill(a, std::byte{1}));
    all.spawn(one_waiter(s, &order, &m));
  }
  TUTTI_EXPECT(order == 0);
  on->pause(false);
  co_await all.join();
  for (int i = 0; i < 50; ++i) TUTTI_EXPECT(mine[static_cast<std::size_t>(i)] == i + 1);
}

task<> gates(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  if (!dev.can().gate) co_return;
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 100);
  gpu::gate g = s.close();
  tutti::request behind = tutti::start(s.fill(a, std::byte{3}));
  const auto refused = tutti::test::failure_of([&s] { gpu::gate second = s.close(); });
  TUTTI_EXPECT(refused.code == errc::resources);
  TUTTI_EXPECT(refused.says("set_gate_limit"));
  // The host and other streams go on meanwhile.
  const gpu::stream other(dev);
  co_await other.reached();
  TUTTI_EXPECT(!behind.done());
  g.open();
  TUTTI_EXPECT(g.is_open());
  co_await behind;

  std::optional<gpu::gate> dropped(s.close());
  tutti::request again = tutti::start(s.fill(a, std::byte{4}));
  dropped.reset();  // opens
  co_await again;

  // The gate is in the frame of an await that is abandoned.
  const auto closes = [](gpu::stream in, communicator w) -> task<> {
    gpu::gate held = in.close();
    boost::asio::steady_timer never(w.get_executor(), 1h);
    co_await never.async_wait(boost::asio::deferred);
  };
  const auto result = co_await tutti::as_result(tutti::with_timeout(closes(s, world), 5ms));
  TUTTI_EXPECT(result.error == errc::timed_out);
  co_await s.reached();
}

task<> awaits_that_end_early(communicator world, bench* on) {
  if (!on->pause) co_return;  // a GPU cannot be paused
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 100);
  on->pause(true);
  tutti::request w = tutti::start(s.fill(a, std::byte{1}));
  const auto late = co_await tutti::as_result(tutti::with_timeout(s.reached(), 5ms));
  TUTTI_EXPECT(late.error == errc::timed_out);
  const auto later = co_await tutti::as_result(tutti::with_timeout(s.fill(a, std::byte{2}), 5ms));
  TUTTI_EXPECT(later.error == errc::timed_out);
  TUTTI_EXPECT(!w.done());
  // A frame that is destroyed while it waits.
  {
    tutti::scope waits;
    int order = 0, mine = 0;
    waits.spawn(one_waiter(s, &order, &mine));
    waits.spawn(one_waiter(s, &order, &mine));
  }
  on->pause(false);
  co_await s.reached();
  co_await w;
}

task<> buffers_stay_until_the_device_is_done(communicator world, bench* on) {
  if (!on->pause || !on->allocations) co_return;  // a GPU cannot be paused
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  const std::size_t before = on->allocations();
  gpu::device_buffer<int> result(dev, 5000);
  on->pause(true);
  {
    gpu::device_buffer<int> source(dev, 5000);
    tutti::request filling = tutti::start(s.fill(source, std::byte{7}));
    tutti::request dropped = tutti::start(s.copy(result, source));
  }
  TUTTI_EXPECT(on->allocations() == before + 2);
  on->pause(false);
  std::vector<int> out(5000);
  co_await s.download(out, result);
  TUTTI_EXPECT(out[4999] == 0x07070707);
  co_await s.reached();
  // Some drivers free memory on a thread of their own.
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (on->allocations() > before + 1 && std::chrono::steady_clock::now() < until) co_await s.reached();
  TUTTI_EXPECT(on->allocations() == before + 1);
}

task<> a_failure_ends_all(communicator world, bench* on) {
  if (!on->fail_after) co_return;  // a GPU cannot be made to fail
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev), other(dev);
  gpu::device_buffer<int> a(dev, 100);
  co_await s.fill(a, std::byte{1});
  on->fail_after(2, "the cable was cut");
  gpu::gate g;
  if (dev.can().gate) g = other.close();
  tutti::request behind = tutti::start(other.fill(a, std::byte{1}));
  tutti::request fine = tutti::start(s.fill(a, std::byte{1}));
  tutti::request fails = tutti::start(s.fill(a, std::byte{1}));
  const tutti::test::failure seen = co_await tutti::test::failure_in(s.reached());
  TUTTI_EXPECT(seen.code == errc::device_failed);
  TUTTI_EXPECT(seen.says(on->tells_why ? "the cable was cut" : "DEVICE_LOST"));
  std::optional<tutti::test::failure> work_seen;
  try {
    co_await behind;
  } catch (...) {
    work_seen = tutti::test::describe(std::current_exception());
  }
  if (dev.can().gate) TUTTI_EXPECT(work_seen && work_seen->code == errc::device_failed);
  TUTTI_EXPECT(dev.failed());
  const auto refused = co_await tutti::as_result(s.fill(a, std::byte{1}));
  TUTTI_EXPECT(refused.error == errc::device_failed);
  TUTTI_EXPECT(tutti::test::failure_of([&dev] { gpu::device_buffer<int> b(dev, 1); }).code ==
               errc::device_failed);
}

task<> nothing_waits_for_ever(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 100);
  on->pause(true);
  tutti::request w = tutti::start(s.fill(a, std::byte{1}));
  std::optional<tutti::test::failure> seen;
  try {
    co_await s.reached();  // under the world's time limit
  } catch (...) {
    seen = tutti::test::describe(std::current_exception());
  }
  on->pause(false);
  TUTTI_EXPECT(seen && seen->code == errc::timed_out);
  TUTTI_EXPECT(seen->says("did not get to where it is awaited"));
  co_await s.reached();
}

task<> capturing(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  if (!on->set_capturing) co_return;
  on->set_capturing(s, true);
  const auto seen = co_await tutti::as_result(s.reached());
  on->set_capturing(s, false);
  TUTTI_EXPECT(seen.error == errc::invalid_argument);
  co_await s.reached();

  // A graph must not wait for the word of a gate, which may be gone before the graph is launched.
  const auto capturing = [&](auto f) {
    on->set_capturing(s, true);
    const tutti::test::failure failed = tutti::test::failure_of(f);
    on->set_capturing(s, false);
    return failed.code;
  };
  if (!dev.can().gate) co_return;
  TUTTI_EXPECT(capturing([&] { gpu::gate g = s.close(); }) == errc::invalid_argument);
  co_await s.reached();
}

task<> from_asio(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 100);
  std::future<void> there = s.reached()(boost::asio::use_future);
  std::future<tutti::status> filled = s.fill(a, std::byte{1})(boost::asio::use_future);
  co_await s.reached();
  while (there.wait_for(0s) != std::future_status::ready || filled.wait_for(0s) != std::future_status::ready)
    co_await s.reached();
  TUTTI_EXPECT(filled.get().bytes == 400);
}

task<> misuse(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> small(dev, 10), large(dev, 20);
  TUTTI_EXPECT(tutti::test::failure_of([&] { static_cast<void>(s.copy(small, large)); }).code ==
               errc::truncated);
  TUTTI_EXPECT(tutti::test::failure_of([&] { gpu::stream none{gpu::device()}; }).code ==
               errc::invalid_argument);
  TUTTI_EXPECT(tutti::test::failure_of([&] { gpu::stream::borrow(dev, nullptr); }).code ==
               errc::invalid_argument);
  TUTTI_EXPECT(tutti::test::failure_of([&] { s.wait(tutti::request()); }).code == errc::invalid_argument);
  TUTTI_EXPECT(tutti::test::failure_of([] { static_cast<void>(gpu::stream().reached()); }).code ==
               errc::invalid_argument);
  // Copies of empty buffers do nothing.
  gpu::device_buffer<int> empty(dev, 0);
  std::vector<int> nothing;
  co_await s.upload(empty, nothing);
  co_await s.download(nothing, empty);
  tutti::test::failure foreign;
  std::thread other([&] { foreign = tutti::test::failure_of([&] { gpu::stream t(dev); }); });
  other.join();
  TUTTI_EXPECT(foreign.code == errc::wrong_thread);
}

}  // namespace

TEST_CASE("copies there and back") { on_each_backend(1, there_and_back); }
TEST_CASE("what is uploaded may be changed at once") { on_each_backend(1, uploads_take_a_copy); }
TEST_CASE("a dropped download writes nothing") { on_each_backend(1, dropped_downloads_do_not_write); }
TEST_CASE("streams wait for streams and for work") { on_each_backend(1, streams_in_order); }
TEST_CASE("waiters of a stream are resumed in order") { on_each_backend(1, waiters_in_order); }
TEST_CASE("a gate holds a stream, and opens on every path") { on_each_backend(1, gates); }
TEST_CASE("awaits may end early while the device goes on") { on_each_backend(1, awaits_that_end_early); }
TEST_CASE("buffers stay until the device is done with them") {
  on_each_backend(1, buffers_stay_until_the_device_is_done);
}
TEST_CASE("a failing device ends everything that waits for it") { on_each_backend(1, a_failure_ends_all); }
TEST_CASE("a captured stream cannot be awaited by the host") { on_each_backend(1, capturing); }
TEST_CASE("operations take Asio's completion tokens") { on_each_backend(1, from_asio); }
TEST_CASE("misuse is told") { on_each_backend(1, misuse); }
TEST_CASE("several ranks share a device") { on_each_backend(3, streams_in_order); }

TEST_CASE("a stuck stream ends under the world's time limit") {
  for (const tutti::test::backend& b : tutti::test::backends()) {
    bench on = b.make();
    if (!on.pause) continue;
    tutti::init_options options;
    options.timeout = 300ms;
    tutti::run_local(1, options,
                     [&on](communicator world) { return nothing_waits_for_ever(std::move(world), &on); });
  }
}
