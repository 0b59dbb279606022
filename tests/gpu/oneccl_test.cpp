// SPDX-License-Identifier: Apache-2.0
// oneCCL as awaitables, on a stand-in: every collective on memory of devices and of the host, messages,
// splitting, queues; what ends stuck operations, and what is said.
#include "gpu/backends.hpp"
#include "support/failing_memory.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <doctest/doctest.h>
#include <cmath>
#include <numeric>
#include <tutti/oneccl.hpp>
#include <tutti/tutti.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::bench;
using tutti::test::failure_in;
namespace gpu = tutti::gpu;
namespace oneccl = tutti::oneccl;

// The stand-in in place of libccl.so.2.
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

tutti::init_options within(std::chrono::milliseconds limit) {
  tutti::init_options o;
  o.timeout = limit;
  return o;
}

float number(int rank, std::size_t i) {
  return static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1);
}
std::vector<float> input(int rank, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = number(rank, i);
  return v;
}

task<> every_collective(communicator world, gpu::device dev) {
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  TUTTI_EXPECT(comm.rank() == world.rank() && comm.size() == world.size());
  const std::size_t n = 1000, size = static_cast<std::size_t>(world.size());
  const int me = world.rank(), ranks = world.size(), root = ranks - 1;
  const auto sum_at = [ranks](std::size_t i) {
    float all = 0;
    for (int r = 0; r < ranks; ++r) all += number(r, i);
    return all;
  };
  gpu::device_buffer<float> a(dev, n), b(dev, n), wide(dev, n * size), wide_out(dev, n * size);
  std::vector<float> out(n), wide_result(n * size);
  co_await s.upload(wide, input(me, n * size));

  // Enqueued after the upload, and read by the stream after it: no host in between.
  gpu::work up = tutti::start(s.upload(a, input(me, n)));
  gpu::work reducing = tutti::start(comm.all_reduce(a, b, tutti::sum, s));
  if (dev.can().gate) {
    s.wait(reducing);
  } else {
    co_await reducing;
  }
  co_await s.download(out, b);
  for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(out[i] == sum_at(i));
  co_await reducing;
  co_await comm.all_reduce(a, b, tutti::max, s);
  co_await s.download(out, b);
  for (int r = 0; r < ranks; ++r) TUTTI_EXPECT(out[4] >= number(r, 4));
  co_await comm.all_reduce(a, b, tutti::avg, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(std::abs(out[7] - sum_at(7) / static_cast<float>(ranks)) < 1e-5f);
  co_await comm.all_reduce(a, b, tutti::premul_sum(0.5f), s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[9] == sum_at(9) / 2);
  co_await s.download(out, a);
  TUTTI_EXPECT(out == input(me, n));
  co_await comm.reduce(a, b, tutti::avg, root, s);
  co_await s.download(out, b);
  if (me == root) TUTTI_EXPECT(std::abs(out[999] - sum_at(999) / static_cast<float>(ranks)) < 1e-5f);
  co_await comm.reduce(a, b, tutti::sum, root, s);
  co_await comm.broadcast(b, root, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[999] == sum_at(999));
  co_await comm.all_gather(a, wide_out, s);
  co_await s.download(wide_result, wide_out);
  for (std::size_t r = 0; r < size; ++r)
    TUTTI_EXPECT(wide_result[r * n + 5] == number(static_cast<int>(r), 5));
  co_await s.fill(wide_out, std::byte{0});
  co_await comm.gather(a, wide_out, root, s);
  co_await s.download(wide_result, wide_out);
  for (std::size_t r = 0; r < size; ++r)
    TUTTI_EXPECT(wide_result[r * n + 6] == (me == root ? number(static_cast<int>(r), 6) : 0.0f));
  co_await comm.scatter(wide, b, root, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[3] == number(root, static_cast<std::size_t>(me) * n + 3));
  co_await comm.reduce_scatter(wide, b, tutti::sum, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[4] == sum_at(static_cast<std::size_t>(me) * n + 4));
  co_await comm.all_to_all(wide, wide_out, s);
  co_await s.download(wide_result, wide_out);
  for (std::size_t r = 0; r < size; ++r)
    TUTTI_EXPECT(wide_result[r * n + 8] == number(static_cast<int>(r), static_cast<std::size_t>(me) * n + 8));
  co_await comm.all_to_all(wide, wide, s);  // in place
  co_await s.download(wide_result, wide);
  for (std::size_t r = 0; r < size; ++r)
    TUTTI_EXPECT(wide_result[r * n + 8] == number(static_cast<int>(r), static_cast<std::size_t>(me) * n + 8));
  if (ranks >= 2) {
    if (me == 0) co_await comm.send(a, 1, s);
    if (me == 1) {
      const tutti::status got = co_await comm.recv(b, 0, s);
      TUTTI_EXPECT(got.source == 0 && got.bytes == n * sizeof(float));
      co_await s.download(out, b);
      TUTTI_EXPECT(out == input(0, n));
    }
  }
  gpu::device_buffer<float> none(dev, 0);
  co_await comm.all_reduce(none, tutti::sum, s);

  // What oneCCL cannot do.
  const auto either = [](float x, float y) { return x < y ? x : y; };
  tutti::test::failure seen = co_await failure_in(comm.all_reduce(a, either, s));
  TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("gpu::open"));
  const int other = (me + 1) % ranks;
  seen = co_await failure_in(comm.send(a, other, s, 5));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(comm.recv(a, tutti::any_source, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(comm.send(a, me, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  co_await world.barrier();
}

task<> on_bench(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  co_await every_collective(std::move(world), dev);
}
task<> on_emulated(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  co_await every_collective(std::move(world), dev);
}

// Memory of the host goes to oneCCL as it is; and is not changed where it is only read.
task<> on_host_memory(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  const std::size_t n = 500, size = static_cast<std::size_t>(world.size());
  gpu::pinned_buffer<float> a(dev, n), b(dev, n), wide(dev, n * size);
  const std::vector<float> mine = input(world.rank(), n);
  std::copy(mine.begin(), mine.end(), a.begin());
  const gpu::device_span<float> from(a.data(), n), to(b.data(), n), all(wide.data(), n * size);
  float expected = 0;
  for (int r = 0; r < world.size(); ++r) expected += number(r, 3);
  co_await comm.all_reduce(from, to, tutti::premul_sum(2.0f), s);
  TUTTI_EXPECT(b[3] == 2 * expected);
  TUTTI_EXPECT(std::equal(mine.begin(), mine.end(), a.begin()));
  co_await comm.all_gather(from, all, s);
  for (std::size_t r = 0; r < size; ++r) TUTTI_EXPECT(wide[r * n + 3] == number(static_cast<int>(r), 3));
  co_await comm.reduce_scatter(all, all.subspan(static_cast<std::size_t>(world.rank()) * n, n), tutti::sum,
                               s);
  TUTTI_EXPECT(wide[static_cast<std::size_t>(world.rank()) * n + 3] ==
               number(world.rank(), 3) * static_cast<float>(world.size()));
  co_await comm.all_reduce(from, tutti::avg, s);
  TUTTI_EXPECT(std::abs(a[3] - expected / static_cast<float>(world.size())) < 1e-5f);
}

// With a queue oneCCL averages and scales itself, and each call is waited for on its thread.
task<> with_a_queue(communicator world, std::atomic<int>* finished) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  int there_is_one = 0;
  oneccl::sycl_queue queue;
  queue.handle = &there_is_one;
  queue.finish = [finished] { ++*finished; };
  // The stand-in works on host memory, and so does the first collective: init() asks for nothing else than a
  // buffer.
  oneccl::communicator comm = co_await oneccl::init(world, dev, queue);
  gpu::pinned_buffer<float> a(dev, 10), b(dev, 10);
  for (float& x : a) x = static_cast<float>(world.rank() + 1);
  const gpu::device_span<float> from(a.data(), 10), to(b.data(), 10);
  const float sum = static_cast<float>(world.size() * (world.size() + 1)) / 2;
  co_await comm.all_reduce(from, to, tutti::avg, s);
  TUTTI_EXPECT(std::abs(b[5] - sum / static_cast<float>(world.size())) < 1e-5f);
  co_await comm.all_reduce(from, to, tutti::premul_sum(3.0f), s);
  TUTTI_EXPECT(b[5] == 3 * sum);
  const auto seen = co_await failure_in(comm.all_to_all(from, from, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  co_await world.barrier();
}

task<> splits(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  // The last rank alone is no member; the others are in reverse order.
  const int color = world.rank() == world.size() - 1 ? -1 : 0;
  oneccl::communicator part = co_await comm.split(color, -world.rank());
  TUTTI_EXPECT(static_cast<bool>(part) == (color == 0));
  if (part) {
    TUTTI_EXPECT(part.size() == world.size() - 1 && part.rank() == world.size() - 2 - world.rank());
    gpu::device_buffer<int> a(dev, 10);
    const std::vector<int> in(10, world.rank());
    std::vector<int> out(10);
    co_await s.upload(a, in);
    co_await part.all_reduce(a, tutti::sum, s);
    co_await s.download(out, a);
    TUTTI_EXPECT(out[0] == (world.size() - 1) * (world.size() - 2) / 2);
  }
  co_await world.barrier();
}

task<> many(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev), other(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  std::vector<gpu::device_buffer<int>> buffers;
  std::vector<gpu::work> works;
  const std::vector<int> ones(100, 1);
  for (int i = 0; i < 20; ++i) {
    gpu::device_buffer<int>& b = buffers.emplace_back(dev, 100);
    gpu::work up = tutti::start(s.upload(b, ones));
    works.push_back(tutti::start(comm.all_reduce(b, tutti::sum, s)));
    other.wait(works.back());
    works.push_back(tutti::start(comm.all_reduce(b, tutti::sum, other)));
  }
  for (gpu::work& w : works) co_await w;
  std::vector<int> out(100);
  for (gpu::device_buffer<int>& b : buffers) {
    co_await s.download(out, b);
    TUTTI_EXPECT(out[99] == world.size() * world.size());
  }
  co_await world.barrier();
}

// Rank 1 never calls the second all_reduce.
task<> missing_rank(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await comm.broadcast(a, 0, s);
  if (world.rank() == 1) {
    int token = 0;
    co_await tutti::with_timeout(world.recv(token, 0), 20s);
    const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
    TUTTI_EXPECT(seen.code == errc::communicator_failed || seen.code == errc::timed_out);
    TUTTI_EXPECT(seen.says("has not called it"));
  } else {
    const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
    TUTTI_EXPECT(seen.code == errc::timed_out);
    TUTTI_EXPECT(seen.says("rank 1 has not called it"));
    TUTTI_EXPECT(seen.says("broadcast"));
    int token = 1;
    if (world.rank() == 0) co_await world.send(token, 1);
  }
  co_await s.reached();  // the device goes on
}

// Rank 1 dies, as far as the others can see.
task<> dying_rank(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 1) throw std::runtime_error("rank 1 is ill");
  const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::peer_failed || seen.code == errc::peer_left ||
               seen.code == errc::communicator_failed);
  TUTTI_EXPECT(seen.says("rank 1"));
  co_await s.reached();
}

task<> stuck_in_the_library(communicator world, const stage* on) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 0) on->block_calls(true);
  co_await world.barrier();
  const auto seen = co_await failure_in(tutti::with_timeout(comm.all_reduce(a, tutti::sum, s), 50ms));
  TUTTI_EXPECT(seen.code != errc::success);
  const auto after = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
  co_await s.reached();  // the loop was never in it
  co_await world.barrier();
}

// Memory runs out at the allocation of this number in the start of an operation.
task<> without_memory(communicator world, long allocation, bool* thrown) {
  using tutti::test::failing_memory;
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  gpu::operation sum_up = comm.all_reduce(a, tutti::sum, s);
  gpu::work w;
  failing_memory::fail_after(allocation, 1);
  try {
    w = tutti::start(std::move(sum_up));
  } catch (const std::bad_alloc&) {
    *thrown = true;
  }
  failing_memory::never_fail();
  if (*thrown) co_await comm.all_reduce(a, tutti::sum, s);
}

task<> failing_call(communicator world, const stage* on) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 0) on->fail_next(3);
  co_await world.barrier();
  const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(seen.code != errc::success);
  TUTTI_EXPECT(seen.says("as the stand-in says"));
  co_await s.reached();
  co_await world.barrier();
}

}  // namespace

TEST_CASE("every collective of oneCCL") {
  for (const int ranks : {1, 2, 3}) {
    const stage on;
    tutti::run_local(ranks, within(tutti::test::patience), on_emulated);
    CHECK(on.communicators() == 0);
  }
}
TEST_CASE("every collective of oneCCL, on every device") {
  const stage on;
  tutti::test::on_each_backend(2, on_bench);
}
TEST_CASE("memory of the host goes to oneCCL as it is") {
  const stage on;
  tutti::run_local(2, within(tutti::test::patience), on_host_memory);
}
TEST_CASE("oneCCL works on a queue of the program's") {
  const stage on;
  std::atomic<int> finished{0};
  tutti::run_local(2, within(tutti::test::patience),
                   [&finished](communicator world) { return with_a_queue(std::move(world), &finished); });
  CHECK(finished.load() == 2 * 3);
}
TEST_CASE("oneCCL's communicators are split") {
  const stage on;
  tutti::run_local(3, within(tutti::test::patience), splits);
}
TEST_CASE("many operations of oneCCL's are in flight") {
  const stage on;
  tutti::run_local(2, within(tutti::test::patience), many);
}
TEST_CASE("a rank that does not call oneCCL is named when the time is over") {
  const stage on;
  const auto failures = tutti::test::failures_of(3, within(3s), missing_rank);
  for (const auto& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
}
TEST_CASE("a rank that dies ends what is stuck in oneCCL on the others") {
  const stage on;
  bool told = false;
  try {
    tutti::run_local(3, within(tutti::test::patience), dying_rank);
  } catch (const std::exception& e) {
    told = std::string(e.what()).find("rank 1 is ill") != std::string::npos;
    CHECK_MESSAGE(told, e.what());
  }
  CHECK(told);
}
TEST_CASE("a call of oneCCL's that does not return is left alone") {
  const stage on;
  tutti::run_local(2, within(tutti::test::patience),
                   [&on](communicator world) { return stuck_in_the_library(std::move(world), &on); });
  on.block_calls(false);
}
TEST_CASE("an operation of oneCCL's that could not be started leaves nothing pending") {
  // Until it runs: what it lacks from then on fails the communicator.
  bool thrown = true;
  for (long allocation = 0; thrown; ++allocation) {
    CAPTURE(allocation);
    const stage on;
    thrown = false;
    tutti::run_local(1, within(tutti::test::patience), [allocation, &thrown](communicator world) {
      return without_memory(std::move(world), allocation, &thrown);
    });
    CHECK((thrown || allocation > 0));
    if (thrown) CHECK(on.communicators() == 0);
  }
}
TEST_CASE("what oneCCL says is handed on, to all ranks") {
  const stage on;
  tutti::run_local(2, within(tutti::test::patience),
                   [&on](communicator world) { return failing_call(std::move(world), &on); });
}
TEST_CASE("without oneCCL, asking for it says what is missing") {
  ::setenv("TUTTI_ONECCL_LIBRARY", "/no/such/libccl.so", 1);
  CHECK(oneccl::version() == 0);
  CHECK(oneccl::why_not().find("/no/such/libccl.so") != std::string::npos);
  tutti::run_local(1, [](communicator world) -> task<> {
    const gpu::device dev = tutti::emulated::open(world);
    const auto seen = co_await failure_in(oneccl::init(world, dev));
    TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("install oneCCL") && seen.says("gpu::open"));
  });
  ::unsetenv("TUTTI_ONECCL_LIBRARY");
}
