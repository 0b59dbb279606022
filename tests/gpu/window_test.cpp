// SPDX-License-Identifier: Apache-2.0
// Windows of device memory on every test device: ranks of one process. tests/programs/gpu_share_job.cpp has processes,
// and the death of one.
#include "gpu/backends.hpp"
#include "support/contains.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace tutti::test;
using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;
namespace emulated = tutti::emulated;

auto at_least(std::uint64_t least) {
  return [least](std::uint64_t now) { return now >= least; };
}
int right_of(const communicator& c) { return (c.rank() + 1) % c.size(); }

task<place> open_place(communicator world, bench* on) {
  const gpu::device device = on->open(world);
  co_return co_await open_on(world, device);
}

template <class T>
task<> expect(gpu::stream s, gpu::device_span<const T> memory, std::vector<T> values) {
  std::vector<T> there(memory.size());
  co_await s.download(there, memory);
  TUTTI_EXPECT(there == values);
}

// Each rank writes its block in every window; all look at all.
task<> put_everywhere(communicator world, bench* on) {
  const place at = co_await open_place(world, on);
  const auto me = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t n : {std::size_t{1}, std::size_t{777}, std::size_t{150'001}}) {
    gpu::device_buffer<float> field(at.device, n * ranks), mine(at.device, n), theirs(at.device, n * ranks);
    gpu::window w = co_await world.window(field, {.signals = 4});
    const std::vector<float> values = numbers(world.rank(), n);
    tutti::request up = tutti::start(at.stream.upload(mine, values));  // the puts come after it
    for (int r = 0; r < world.size(); ++r) co_await w.put_signal(mine, r, n * me, 3, at.stream);
    co_await at.stream.fill(mine, std::byte{0});
    const std::uint64_t came = co_await w.wait_signal(3, at_least(ranks));
    TUTTI_EXPECT(came == ranks && w.signal(3) == ranks);
    std::vector<float> expected;
    for (int r = 0; r < world.size(); ++r)
      for (const float x : numbers(r, n)) expected.push_back(x);
    co_await expect<float>(at.stream, w.local(), expected);
    co_await world.barrier();  // the others' windows have all blocks, too
    for (int r = 0; r < world.size(); ++r) {
      co_await at.stream.fill(theirs, std::byte{0});
      co_await w.get(theirs, r, 0, at.stream);
      co_await expect<float>(at.stream, theirs, expected);
    }
    // A part, and a signal without data, which comes after the stream's work.
    co_await world.barrier();
    co_await w.put(theirs.span().first(1), right_of(world), n * me, at.stream);
    co_await w.put_signal(gpu::device_span<const float>(), right_of(world), 0, 1, 5, at.stream);
    const std::uint64_t five = co_await w.wait_signal(1, at_least(5));
    TUTTI_EXPECT(five == 5);
    co_await up;
    co_await world.barrier();
  }
}

// The put waits for its stream, which is closed, and another stream waits for the put.
task<> in_order_of_streams(communicator world, bench* on) {
  const place at = co_await open_place(world, on);
  if (!at.device.can().gate) co_return;
  const gpu::stream other(at.device);
  gpu::device_buffer<int> field(at.device, 1000), mine(at.device, 1000), back(at.device, 1000);
  gpu::window w = co_await world.window(field, {.signals = 1});
  const std::vector<int> values(1000, world.rank() + 5);
  gpu::gate closed = at.stream.close();
  tutti::request up = tutti::start(at.stream.upload(mine, values));
  tutti::request putting = tutti::start(w.put_signal(mine, right_of(world), 0, 0, at.stream));
  other.wait(putting);
  tutti::request getting = tutti::start(w.get(back, right_of(world), 0, other));
  co_await tutti::sleep_for(3ms);
  TUTTI_EXPECT(!putting.done() && !getting.done() && w.signal(0) == 0);
  co_await world.barrier();  // no rank has opened its gate
  closed.open();
  co_await up;
  co_await putting;
  co_await getting;
  co_await expect<int>(at.stream, back, values);
  co_await w.wait_signal(0, at_least(1));
  co_await world.barrier();
}

// Rounds of which some are ended early. Each rank alone writes its block, so one that completed is there in full.
task<> end_some_early(communicator world, bench* on) {
  const place at = co_await open_place(world, on);
  const std::size_t n = 20'000;
  random_numbers random(seed_of_this_run() + static_cast<std::uint64_t>(world.rank()));
  gpu::device_buffer<int> field(at.device, n * static_cast<std::size_t>(world.size()));
  const std::size_t base = n * static_cast<std::size_t>(world.rank());
  {
    gpu::window w = co_await world.window(field, {.signals = world.size()});
    std::uint64_t sure = 0, maybe = 0;
    for (int round = 1; round <= 15; ++round) {
      std::optional<gpu::device_buffer<int>> mine(std::in_place, at.device, n);
      const std::vector<int> values(n, round);
      tutti::request up = tutti::start(at.stream.upload(*mine, values));
      const auto limit = std::chrono::microseconds(random.one_in(3) ? 1'000'000 : random.below(1500));
      const failure f = co_await failure_in(
          tutti::with_timeout(w.put_signal(*mine, right_of(world), base, world.rank(), at.stream), limit));
      mine.reset();  // the operation keeps it as long as it needs
      const bool done = f.code == errc::success;
      TUTTI_EXPECT(done || f.code == errc::timed_out);
      ++(done ? sure : maybe);
      if (done) {
        gpu::device_buffer<int> back(at.device, n);
        co_await w.get(back, right_of(world), base, at.stream);
        co_await expect<int>(at.stream, back, values);
      }
      co_await up;
    }
    const std::uint64_t told = co_await w.fetch_add(right_of(world), world.rank(), 0);
    TUTTI_EXPECT(told >= sure && told <= sure + maybe);
    co_await world.barrier();
  }
  // No rank writes to it any more, though copies of operations that ended early may have been under way.
  co_await at.stream.fill(field, std::byte{0x11});
  co_await world.barrier();
  co_await expect<int>(at.stream, field, std::vector<int>(field.size(), 0x11111111));
}

task<> refuse_what_is_wrong(communicator world, bench* on) {
  const place at = co_await open_place(world, on);
  const int right = right_of(world);
  const auto theirs = static_cast<std::size_t>(10 + right);
  gpu::device_buffer<float> field(at.device, 10 + static_cast<std::size_t>(world.rank())), x(at.device, 13);
  gpu::window w = co_await world.window(field, {.signals = 2});
  const failure far = co_await failure_in(w.put(x, right, 0, at.stream));
  TUTTI_EXPECT(far.code == errc::invalid_argument);
  TUTTI_EXPECT(contains(far.text, "13 elements from element 0 on end past the window of rank " +
                                      std::to_string(right) + ", which has " + std::to_string(theirs)));
  const failure nowhere = co_await failure_in(w.put(x, world.size(), 0, at.stream));
  TUTTI_EXPECT(contains(nowhere.text, "outside the window"));
  const failure no_signal = co_await failure_in(w.put_signal(x.span().first(1), right, 0, 2, at.stream));
  TUTTI_EXPECT(contains(no_signal.text, "has 2 signals"));
  const failure no_stream = co_await failure_in(w.put(x.span().first(1), right, 0, gpu::stream()));
  TUTTI_EXPECT(contains(no_stream.text, "the stream is empty"));
  co_await w.put(x.span().first(0), right, theirs, at.stream);
  co_await world.barrier();

  gpu::device_buffer<double> doubles(at.device, 4);
  const communicator second = co_await world.duplicate();
  failure f;
  if (world.rank() == 1)
    f = co_await failure_in(second.window(doubles));
  else
    f = co_await failure_in(second.window(field));
  TUTTI_EXPECT(f.code == errc::mismatch);
  TUTTI_EXPECT(contains(f.text, "window(double)"));
}

task<> use_a_window_that_another_dropped(communicator world, bench* on) {
  const place at = co_await open_place(world, on);
  gpu::device_buffer<int> field(at.device, 100), x(at.device, 100);
  co_await at.stream.fill(x, std::byte{1});
  std::optional<gpu::window<int>> w(co_await world.window(field));
  if (world.rank() != 0) co_await w->put(x, 0, 0, at.stream);
  co_await world.barrier();
  if (world.rank() == 0) {
    auto waiting = tutti::start(w->wait_signal(0, at_least(100)));
    w.reset();
    const failure ended = co_await failure_awaiting(&waiting);
    TUTTI_EXPECT(ended.code == errc::shut_down);
    co_await at.stream.fill(field, std::byte{3});
  }
  co_await world.barrier();
  if (world.rank() != 0) {
    const failure put = co_await failure_in(w->put(x, 0, 0, at.stream));
    TUTTI_EXPECT(put.code == errc::peer_left);
    TUTTI_EXPECT(put.says("rank 0"));
    const failure got = co_await failure_in(w->get(x, 0, 0, at.stream));
    TUTTI_EXPECT(got.code == errc::peer_left);
  }
  co_await world.barrier();
  if (world.rank() == 0) co_await expect<int>(at.stream, field, std::vector<int>(100, 0x03030303));
}

task<> be_refused(communicator world, std::shared_ptr<emulated::emulated_device> on, const char* why) {
  const place at = co_await open_on(world, emulated::open(world, on));
  gpu::device_buffer<int> field(at.device, 100);
  const failure f = co_await failure_in(world.window(field));
  TUTTI_EXPECT(f.code == errc::not_supported);
  TUTTI_EXPECT(f.says(why) && f.says("make the window of memory of the host"));
}

}  // namespace

TEST_CASE("windows of devices: put_signal, wait_signal and get in all pairs") {
  on_each_backend(1, put_everywhere);
  on_each_backend(3, put_everywhere);
}
TEST_CASE("windows of devices: operations follow their stream, and streams wait for them") {
  on_each_backend(2, in_order_of_streams);
}
TEST_CASE("windows of devices: operations that end early") { on_each_backend(3, end_some_early); }
TEST_CASE("windows of devices: what is wrong is named") { on_each_backend(3, refuse_what_is_wrong); }
TEST_CASE("windows of devices: one that another rank has dropped") {
  on_each_backend(3, use_a_window_that_another_dropped);
}
TEST_CASE("windows of devices: ranks that cannot reach each other's memory are told why") {
  run_local(2, over("tcp"), [](communicator world) {
    return be_refused(std::move(world), emulated::default_device(), "the transport is not shm");
  });
  run_local(2, over("shm"), [](communicator world) {
    const int mine = world.rank();
    return be_refused(std::move(world), emulated::default_device(mine), "is of another device than");
  });
}
