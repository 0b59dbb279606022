// SPDX-License-Identifier: Apache-2.0
// Collectives on device memory and host memory by oneCCL, on its stand-in: what oneCCL serves, its queues,
// what ends a stuck call, and the error texts.
#include "gpu/backends.hpp"
#include "support/failing_memory.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/oneccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::bench;
using tutti::test::failure_awaiting;
using tutti::test::failure_in;
using tutti::test::numbers;
using tutti::test::place;
using tutti::test::same;
using tutti::test::same_in_place;
namespace gpu = tutti::gpu;
namespace oneccl = tutti::oneccl;

// Puts the stand-in in place of libccl.so.2.
class stage {
 public:
  stage() {
    ::setenv("TUTTI_ONECCL_LIBRARY", tutti::test::stand_in("oneccl").c_str(), 1);
    library_ = ::dlopen(tutti::test::stand_in("oneccl").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
    call<void()>("tutti_fake_oneccl_reset")();
  }
  ~stage() {
    CHECK(call<std::uint64_t()>("tutti_fake_oneccl_misuses")() == 0);
    ::unsetenv("TUTTI_ONECCL_LIBRARY");
  }
  void block_calls(bool on) const { call<void(int)>("tutti_fake_oneccl_block_calls")(on ? 1 : 0); }
  void fail_next(int code) const { call<void(int)>("tutti_fake_oneccl_fail_next")(code); }
  int communicators() const { return call<int()>("tutti_fake_oneccl_communicators")(); }

 private:
  template <class F>
  F* call(const char* name) const {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }
  void* library_ = nullptr;
};

// Runs body(place) on every rank by oneCCL, on an emulated device.
template <class Body>
task<> by_oneccl(communicator world, Body body, oneccl::sycl_queue queue) {
  const gpu::device device = tutti::emulated::open(world);
  gpu::open_options how = tutti::test::with(gpu::backend::oneccl);
  how.queue = queue;
  const place at = co_await tutti::test::open_on(world, device, how);
  co_await body(at);
}
template <class Body>
void run(int ranks, Body body, std::chrono::milliseconds limit = tutti::test::patience,
         const oneccl::sycl_queue& queue = oneccl::sycl_queue()) {
  tutti::init_options options;
  options.timeout = limit;
  tutti::run_local(ranks, options,
                   [&](communicator world) { return by_oneccl(std::move(world), body, queue); });
}

task<> collectives(place at) {
  const communicator world = at.world;
  const gpu::stream s = at.stream;
  const std::size_t n = 1000;
  const int root = world.size() - 1;
  gpu::device_buffer<float> a(at.device, n), none(at.device, 0);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(a, tutti::sum, s)).with == gpu::backend::oneccl);
  co_await tutti::test::even_collectives(at, n);
  co_await tutti::test::averages_and_scaled_sums(at, n);
  co_await same_in_place(at, n,
                         [=](auto& c, auto& x, auto&... t) { return c.reduce(x, tutti::avg, root, t...); });
  co_await world.all_reduce(none, tutti::sum, s);

  // oneCCL cannot do these; messages are staged.
  const auto either = [](float x, float y) { return x < y ? x : y; };
  tutti::test::failure seen = co_await failure_in(world.all_reduce(a, either, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(world.scan(a, a, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  TUTTI_EXPECT(gpu::backend_for(world.send(a, root, s)).with == gpu::backend::staged);
  co_await world.barrier();
}

task<> on_bench(communicator world, bench* on) {
  const gpu::open_options how = tutti::test::with(gpu::backend::oneccl);
  const place at = co_await tutti::test::open_on(world, on->open(world), how);
  co_await collectives(at);
}

// oneCCL uses host memory in place, and does not change what it only reads.
task<> on_host_memory(place at) {
  const std::size_t n = 500, size = static_cast<std::size_t>(at.world.size());
  const int me = at.world.rank();
  gpu::pinned_buffer<float> a(at.device, n), b(at.device, n), wide(at.device, n * size);
  const std::vector<float> mine = numbers(me, n);
  std::copy(mine.begin(), mine.end(), a.begin());
  const gpu::device_span<float> from(a.data(), n), to(b.data(), n), all(wide.data(), n * size);
  const gpu::device_span<float> own = all.subspan(static_cast<std::size_t>(me) * n, n);
  float expected = 0;
  for (int r = 0; r < at.world.size(); ++r) expected += numbers(r, n)[3];
  co_await at.world.all_reduce(from, to, tutti::premul_sum(2.0F), at.stream);
  TUTTI_EXPECT(b[3] == 2 * expected);
  TUTTI_EXPECT(std::equal(mine.begin(), mine.end(), a.begin()));
  co_await at.world.all_gather(from, all, at.stream);
  for (std::size_t r = 0; r < size; ++r) TUTTI_EXPECT(wide[r * n + 3] == numbers(static_cast<int>(r), n)[3]);
  co_await at.world.reduce_scatter(all, own, tutti::sum, at.stream);
  TUTTI_EXPECT(wide[static_cast<std::size_t>(me) * n + 3] == mine[3] * static_cast<float>(at.world.size()));
  co_await at.world.all_reduce(from, tutti::avg, at.stream);
  TUTTI_EXPECT(std::abs(a[3] - expected / static_cast<float>(at.world.size())) < 1e-5F);
}

// With a queue oneCCL averages and scales itself, and its thread waits for each call.
task<> with_a_queue(place at) {
  // The stand-in needs host memory.
  gpu::pinned_buffer<float> a(at.device, 10), b(at.device, 10);
  for (float& x : a) x = static_cast<float>(at.world.rank() + 1);
  const gpu::device_span<float> from(a.data(), 10), to(b.data(), 10);
  const float sum = static_cast<float>(at.world.size() * (at.world.size() + 1)) / 2;
  co_await at.world.all_reduce(from, to, tutti::sum, at.stream);
  TUTTI_EXPECT(b[5] == sum);
  co_await at.world.all_reduce(from, to, tutti::avg, at.stream);
  TUTTI_EXPECT(std::abs(b[5] - sum / static_cast<float>(at.world.size())) < 1e-5F);
  co_await at.world.all_reduce(from, to, tutti::premul_sum(3.0F), at.stream);
  TUTTI_EXPECT(b[5] == 3 * sum);
  const auto seen = co_await failure_in(at.world.all_to_all(from, from, at.stream));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  co_await at.world.barrier();
}

task<> stuck_in_the_library(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.world.barrier();
  if (at.world.rank() == 0) on->block_calls(true);
  co_await at.world.barrier();
  const auto seen =
      co_await failure_in(tutti::with_timeout(at.world.all_reduce(a, tutti::sum, at.stream), 50ms));
  TUTTI_EXPECT(seen.code == errc::timed_out);
  const auto after = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
  co_await at.stream.reached();  // the loop was never in oneCCL
}

// Memory runs out at this allocation during the start of an operation.
task<> without_memory(place at, long allocation, bool* failed) {
  using tutti::test::failing_memory;
  gpu::pinned_buffer<int> a(at.device, 10);
  const gpu::device_span<int> x(a.data(), 10);
  co_await at.world.all_reduce(x, tutti::sum, at.stream);
  tutti::operation<> sum_up = at.world.all_reduce(x, tutti::sum, at.stream);
  tutti::request r;
  failing_memory::fail_after(allocation, 1);
  try {
    r = tutti::start(std::move(sum_up));
  } catch (const std::bad_alloc&) {
    *failed = true;
  }
  failing_memory::never_fail();
  if (r) {
    const auto seen = co_await failure_awaiting(&r);
    TUTTI_EXPECT(seen.code == errc::success || seen.code == errc::resources);
    *failed = seen.code == errc::resources;
  }
  const communicator next = co_await at.world.shrink();
  co_await next.all_reduce(x, tutti::sum, at.stream);
}

task<> failing_call(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.world.barrier();
  if (at.world.rank() == 0) on->fail_next(3);
  co_await at.world.barrier();
  const auto seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(seen.code == errc::device_failed);
  TUTTI_EXPECT(seen.says("as the stand-in says"));
  co_await at.stream.reached();
}

}  // namespace

TEST_CASE("every collective of oneCCL") {
  for (const int ranks : {1, 2, 3}) {
    const stage on;
    run(ranks, collectives);
    CHECK(on.communicators() == 0);
  }
}
TEST_CASE("every collective of oneCCL, on every device") {
  const stage on;
  tutti::test::on_each_backend(2, on_bench);
}
TEST_CASE("memory of the host goes to oneCCL as it is") {
  const stage on;
  run(2, on_host_memory);
}
TEST_CASE("oneCCL works on a queue of the program's") {
  const stage on;
  std::atomic<int> finished{0};
  int there_is_one = 0;
  oneccl::sycl_queue queue;
  queue.handle = &there_is_one;
  queue.finish = [&finished] { ++finished; };
  run(2, with_a_queue, tutti::test::patience, queue);
  CHECK(finished.load() == 2 * 3);
}
TEST_CASE("oneCCL serves communicators that are made from the world") {
  const stage on;
  run(3, [](place at) { return tutti::test::on_a_split(std::move(at), gpu::backend::oneccl); });
  CHECK(on.communicators() == 0);
}
TEST_CASE("many operations of oneCCL's are in flight") {
  const stage on;
  run(2, tutti::test::many_in_flight);
}
TEST_CASE("a rank that does not call oneCCL is named when the time is over") {
  const stage on;
  run(3, tutti::test::without_rank_1, 3s);
}
TEST_CASE("a rank that dies ends what is stuck in oneCCL on the others") {
  const stage on;
  const auto seen = tutti::test::failure_of([] { run(3, tutti::test::rank_1_dies); });
  CHECK_MESSAGE(seen.says("rank 1 is ill"), seen.text);
}
TEST_CASE("a call of oneCCL's that does not return is left alone") {
  const stage on;
  run(2, [&on](place at) { return stuck_in_the_library(std::move(at), &on); });
  on.block_calls(false);
}
TEST_CASE("an operation of oneCCL's that could not be started leaves nothing pending") {
  bool failed = true;
  for (long allocation = 0; failed; ++allocation) {
    CAPTURE(allocation);
    const stage on;
    failed = false;
    run(1, [allocation, &failed](place at) { return without_memory(std::move(at), allocation, &failed); });
    CHECK((failed || allocation > 0));
  }
}
TEST_CASE("what oneCCL says is handed on, to all ranks") {
  const stage on;
  run(2, [&on](place at) { return failing_call(std::move(at), &on); });
}
TEST_CASE("without oneCCL, asking for it says what is missing") {
  ::setenv("TUTTI_ONECCL_LIBRARY", "/no/such/libccl.so", 1);
  CHECK(oneccl::version() == 0);
  CHECK(oneccl::why_not().find("/no/such/libccl.so") != std::string::npos);
  CHECK(oneccl::why_not().find("install oneCCL") != std::string::npos);
  run(1, [](place at) -> task<> {
    gpu::device_buffer<int> a(at.device, 10);
    const auto seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
    TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("oneCCL"));
  });
  ::unsetenv("TUTTI_ONECCL_LIBRARY");
}
