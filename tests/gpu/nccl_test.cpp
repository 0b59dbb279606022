// SPDX-License-Identifier: Apache-2.0
// Collectives on device memory by NCCL, on the stand-ins: what NCCL serves, what it offers beyond tutti's
// operations, what ends a stuck call, and the error texts.
#include "fake_nccl.hpp"
#include "gpu/backends.hpp"
#include "support/skip.hpp"

#include <dlfcn.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::failure_awaiting;
using tutti::test::failure_in;
using tutti::test::place;
using tutti::test::same;
using tutti::test::same_in_place;
namespace cuda = tutti::cuda;
namespace gpu = tutti::gpu;
namespace nccl = tutti::nccl;

// The stand-ins for CUDA and NCCL, with a device for each rank.
class stage {
 public:
  explicit stage(int devices, std::uint64_t adversary = 0, bool words = true) : before_(fake_.misuses()) {
    fake_.reset(devices, adversary, 0, words ? 1 : 0);
    library_ = ::dlopen(tutti::test::stand_in("nccl").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
    call<void()>("tutti_fake_nccl_reset")();
  }
  ~stage() {
    CHECK_MESSAGE(fake_.misuses() == before_, std::string(fake_.last_misuse()));
    CHECK(number("misuses") == 0);
    CHECK(number("ending") == 0);
  }
  template <class F>
  F* call(const char* name) const {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }
  void block_calls(bool on) const { call<void(int)>("tutti_fake_nccl_block_calls")(on ? 1 : 0); }
  void fail_next(int code) const { call<void(int)>("tutti_fake_nccl_fail_next")(code); }
  void hold(int where) const { call<void(int)>("tutti_fake_nccl_hold")(where); }
  void ignore_revocations() const { call<void(int)>("tutti_fake_nccl_ignore_revocations")(1); }
  void make_ends_slow(int ms) const { call<void(int)>("tutti_fake_nccl_slow_ends")(ms); }
  int communicators() const { return number("communicators"); }
  int aborts() const { return number("aborts"); }
  void give_up_joins() const { call<void()>("tutti_fake_nccl_give_up_joins")(); }
  void refuse_device(int ordinal) const { call<void(int)>("tutti_fake_nccl_refuse_device")(ordinal); }
  task<> until_held(int calls = 1) const {
    for (int i = 0; i < 30000 && number("held") < calls; ++i) co_await tutti::sleep_for(1ms);
    TUTTI_EXPECT(number("held") >= calls);
  }
  task<> until_communicators(int live) const { return until("communicators", live); }
  task<> until_aborts(int calls) const { return until("aborts", calls); }
  // Starts make() while the device can create only `events` more events.
  template <class Make>
  tutti::request start_short_of_events(const gpu::stream& s, int events, const Make& make) const {
    fake_.pause(0, 1);  // no event is returned meanwhile
    fake_.refuse_events_after(0);
    gpu::device_buffer<int> one(s.on(), 1);
    std::vector<tutti::request> takers;  // they use up the spare events
    do {
      takers.push_back(tutti::start(s.fill(one, std::byte{0})));
    } while (!takers.back().done());
    fake_.refuse_events_after(events);
    tutti::request r = tutti::start(make());
    fake_.refuse_events_after(-1);
    fake_.pause(0, 0);
    return r;
  }

 private:
  int number(const char* what) const {
    return call<int()>(("tutti_fake_nccl_" + std::string(what)).c_str())();
  }
  task<> until(const char* what, int count) const {
    for (int i = 0; i < 30000 && number(what) != count; ++i) co_await tutti::sleep_for(1ms);
    TUTTI_EXPECT(number(what) == count);
  }
  const tutti::test::variable cuda_{"TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda")};
  const tutti::test::variable nccl_{"TUTTI_NCCL_LIBRARY", tutti::test::stand_in("nccl")};
  tutti::test::fake_cuda fake_;
  std::uint64_t before_;
  void* library_ = nullptr;
};

// Runs body(place) on every rank by NCCL, on device `ordinal`, or if -1 on the device of the rank's number.
template <class Body>
task<> by_nccl(communicator world, Body body, int ordinal) {
  const gpu::device device = cuda::open(world, ordinal < 0 ? world.rank() : ordinal);
  const place at = co_await tutti::test::open_on(world, device, tutti::test::with(gpu::backend::nccl));
  co_await body(at);
}
template <class Body>
void run(int ranks, Body body, std::chrono::milliseconds limit = tutti::test::patience, int ordinal = -1) {
  tutti::init_options options;
  options.timeout = limit;
  tutti::run_local(ranks, options,
                   [&](communicator world) { return by_nccl(std::move(world), body, ordinal); });
}

task<> collectives(place at) {
  const communicator world = at.world;
  const gpu::stream s = at.stream;
  const std::size_t n = 1000;
  const int me = world.rank(), ranks = world.size();
  gpu::device_buffer<float> a(at.device, n), b(at.device, n);
  std::vector<float> out(n);
  co_await s.upload(a, tutti::test::numbers(me, n));
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(a, b, tutti::sum, s)).with == gpu::backend::nccl);
  co_await tutti::test::even_collectives(at, n);
  co_await tutti::test::averages_and_scaled_sums(at, n);
  co_await same_in_place<tutti::bfloat16>(
      at, n, [](auto& c, auto& x, auto&... t) { return c.all_reduce(x, tutti::premul_sum(0.5F), t...); });

  // Messages in a ring, started together; then messages of some ranks only.
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  nccl::batch ring;
  ring.send(a, right).recv(b, left);
  co_await nccl::exchange(world, ring, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out == tutti::test::numbers(left, n));
  nccl::batch one;
  if (ranks > 1 && me == 1) one.send(a, 0);
  if (ranks > 1 && me == 0) one.recv(b, 1);
  co_await nccl::exchange(world, one, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out == tutti::test::numbers(ranks > 1 && me == 0 ? 1 : left, n));

  // NCCL cannot do these; messages are staged.
  const auto either = [](float x, float y) { return x < y ? x : y; };
  tutti::test::failure seen = co_await failure_in(world.all_reduce(a, either, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(world.scan(a, a, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  TUTTI_EXPECT(gpu::backend_for(world.send(a, right, s)).with == gpu::backend::staged);

  // Registered memory, and memory that NCCL allocates.
  nccl::registration known = co_await nccl::register_memory(world, a);
  TUTTI_EXPECT(known);
  auto own = co_await nccl::allocate<float>(world, n);
  co_await world.all_reduce(a, own.second, tutti::max, s);
  co_await world.all_reduce(a, tutti::max, s);
  co_await s.download(out, own.second);
  std::vector<float> expected(n);
  co_await s.download(expected, a);
  TUTTI_EXPECT(out == expected);
  co_await world.barrier();
}

// Rank 0 cancels its call. The last rank never calls, so the operation completes nowhere.
task<> cancelled_on_rank_0(place at) {
  gpu::device_buffer<int> a(at.device, 10);
  const std::vector<int> ones(10, 1);
  std::vector<int> out(10);
  co_await at.stream.upload(a, ones);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  const bool calls = at.world.rank() + 1 < at.world.size();
  int nothing = 0;
  tutti::request r =
      calls ? tutti::start(at.world.all_reduce(a, tutti::sum, at.stream)) : at.world.irecv(nothing, 0);
  if (at.world.rank() == 0) {
    at.stream.wait(r);
    r.cancel();
  }
  const auto seen = co_await failure_awaiting(&r);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  TUTTI_EXPECT(seen.says("rank 0"));
  co_await at.stream.reached();  // the stream goes on
  at.world = co_await at.world.shrink();
  co_await at.stream.upload(a, ones);
  TUTTI_EXPECT(gpu::backend_for(at.world.all_reduce(a, tutti::sum, at.stream)).with == gpu::backend::nccl);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.stream.download(out, a);
  TUTTI_EXPECT(out[0] == at.world.size());
}

// The sum over all ranks, by a new communicator.
task<> works_anew(place at) {
  const communicator next = co_await at.world.duplicate();
  gpu::device_buffer<int> a(at.device, 10);
  const std::vector<int> ones(10, 1);
  std::vector<int> out(10);
  co_await at.stream.upload(a, ones);
  co_await next.all_reduce(a, tutti::sum, at.stream);
  co_await at.stream.download(out, a);
  TUTTI_EXPECT(out[9] == at.world.size());
  co_await at.world.barrier();
}

// Rank 1 does not come to the first collective of a communicator.
task<> absent_from_the_first(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  {
    const communicator work = co_await at.world.duplicate();
    if (at.world.rank() == 0) {
      const auto seen =
          co_await failure_in(tutti::with_timeout(work.all_reduce(a, tutti::sum, at.stream), 100ms));
      TUTTI_EXPECT(seen.code == errc::timed_out);
    }
    co_await at.world.barrier();
  }
  TUTTI_EXPECT(on->communicators() == 0);
  co_await works_anew(at);
}

// Both ranks take their call back while NCCL connects them.
task<> ended_while_connecting(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  on->hold(nccl_hold_init);
  {
    const communicator work = co_await at.world.duplicate();
    tutti::request r = tutti::start(work.all_reduce(a, tutti::sum, at.stream));
    co_await on->until_held(2);
    co_await at.world.barrier();
    r.cancel();
    const auto seen = co_await failure_awaiting(&r);
    TUTTI_EXPECT(seen.code == errc::cancelled);
    co_await at.world.barrier();
  }
  on->hold(nccl_hold_none);
  co_await on->until_aborts(2);  // both ranks' calls return communicators, late
  TUTTI_EXPECT(on->communicators() == 0);
  co_await at.world.barrier();
  co_await works_anew(at);
}

// NCCL does not connect the last rank, so ncclCommInitRank returns on no other. The others go on.
task<> left_while_connecting(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  const int last = at.world.size() - 1;
  if (at.world.rank() == last) on->refuse_device(last);
  co_await at.world.barrier();
  const communicator work = co_await at.world.duplicate();
  const auto seen = co_await failure_in(work.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(seen.code == errc::device_failed && seen.says("ncclCommInitRank"));
  communicator others = co_await at.world.split(at.world.rank() == last ? -1 : 0, at.world.rank());
  if (others) {
    at.world = others;
    co_await works_anew(std::move(at));
    if (others.rank() == 0) on->give_up_joins();
  }
}

// Rank 0 gives up `calls` of the connected communicators, which rank 1 does not make. Rank 1 keeps its handles.
task<> given_up(place at, const stage* on, std::size_t calls) {
  std::vector<communicator> work;
  std::vector<gpu::device_buffer<int>> buffers;
  std::vector<gpu::stream> streams;
  for (std::size_t i = 0; i < calls; ++i) {
    work.push_back(co_await at.world.duplicate());
    buffers.emplace_back(at.device, 10);
    streams.emplace_back(at.device);
    co_await work[i].all_reduce(buffers[i], tutti::sum, streams[i]);
  }
  if (at.world.rank() == 0) {
    std::vector<tutti::request> pending;
    for (std::size_t i = 0; i < calls; ++i) {
      pending.push_back(tutti::start(work[i].all_reduce(buffers[i], tutti::sum, streams[i])));
      streams[i].wait(pending[i]);
    }
    co_await tutti::sleep_for(50ms);  // the kernels wait for rank 1
    for (tutti::request& r : pending) r.cancel();
    for (tutti::request& r : pending) {
      const auto seen = co_await failure_awaiting(&r);
      TUTTI_EXPECT(seen.code == errc::cancelled);
    }
  }
  co_await on->until_communicators(0);
  co_await at.world.barrier();
  co_await works_anew(at);
}

// A gate is closed when a communicator of NCCL's ends, and one would close while that is freed.
task<> gates_beside_an_abort(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  const gpu::stream other(at.device);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  on->hold(nccl_hold_entry);
  tutti::request r = tutti::start(at.world.all_reduce(a, tutti::sum, at.stream));
  co_await on->until_held();
  gpu::gate closed = other.close();
  r.cancel();
  const auto seen = co_await failure_awaiting(&r);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  on->hold(nccl_hold_none);
  co_await tutti::sleep_for(300ms);
  TUTTI_EXPECT(on->aborts() == 0);
  on->make_ends_slow(60000);
  closed.open();
  co_await on->until_aborts(1);
  const auto refused = tutti::test::failure_of([&] { closed = other.close(); });
  TUTTI_EXPECT(refused.code == errc::resources && refused.says("stream::follow()"));
  on->make_ends_slow(0);
  closed = other.close();  // waits for the abort
  TUTTI_EXPECT(!closed.is_open());
}

// On rank 0 some operation is always in progress: rank 1 calls each after rank 0 has started the next. Each round drops
// memory, until what waits to be freed becomes less.
task<> never_quiet(place at, const tutti::test::fake_cuda* fake) {
  gpu::device_buffer<int> a(at.device, 10), b(at.device, 10);
  const auto sum_up = [&](int i) { return at.world.all_reduce(i % 2 == 0 ? a : b, tutti::sum, at.stream); };
  int last = 0;
  if (at.world.rank() == 1) {
    for (int i = 0; last == 0; ++i) {
      co_await at.world.recv(last, 0);
      co_await sum_up(i);
    }
    co_return;
  }
  std::uint64_t most = 0;
  bool fell = false;
  tutti::request pending = tutti::start(sum_up(0));
  for (int i = 1; last == 0; ++i) {
    {
      const gpu::device_buffer<int> scratch(at.device, 10);
    }
    const std::uint64_t now = fake->allocations(0);
    most = std::max(most, now);
    fell = most > 100 && now < most / 2;
    last = fell || i == 3000 ? 1 : 0;
    tutti::request next;
    if (last == 0) next = tutti::start(sum_up(i));
    co_await at.world.send(last, 1);
    co_await pending;
    pending = std::move(next);
  }
  TUTTI_EXPECT(fell || most < 2000);
}

// NCCL does not start on rank 1; then it does.
task<> starts_at_the_second_try(communicator world, const stage* on) {
  const gpu::device device = cuda::open(world, world.rank());
  const gpu::open_options how = tutti::test::with(gpu::backend::nccl);
  for (int i = 0; i < 2; ++i) {
    on->refuse_device(1);
    const auto seen = co_await failure_in(gpu::open(world, device, how));
    TUTTI_EXPECT(seen.code == errc::device_failed);
    TUTTI_EXPECT(seen.says("gpu::open on rank 1: NCCL does not start on cuda device 1"));
    TUTTI_EXPECT(seen.says("ncclCommInitRank of one rank") && seen.says("TUTTI_GPU_BACKEND=staged"));
    co_await world.barrier();
  }
  on->refuse_device(-1);
  co_await world.barrier();
  co_await works_anew(co_await tutti::test::open_on(world, device, how));
}

task<> stuck_in_the_library(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.world.barrier();
  if (at.world.rank() == 0) on->block_calls(true);
  co_await at.world.barrier();
  const auto seen =
      co_await failure_in(tutti::with_timeout(at.world.all_reduce(a, tutti::premul_sum(2), at.stream), 50ms));
  TUTTI_EXPECT(seen.code == errc::timed_out);
  co_await at.stream.reached();  // the loop was never in NCCL
}

// The loop thread ends the communicator when the submit thread is about to pass it to NCCL.
task<> ended_at_the_entry(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  on->hold(nccl_hold_entry);
  tutti::request r = tutti::start(at.world.all_reduce(a, tutti::sum, at.stream));
  co_await on->until_held();
  r.cancel();
  const auto seen = co_await failure_awaiting(&r);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  const auto after = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
  co_await at.stream.reached();
}

// The loop thread ends the communicator when the submit thread is inside a group, which it fills afterwards.
task<> ended_in_a_group(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10), b(at.device, 10);
  nccl::batch itself;
  itself.send(a, 0).recv(b, 0);
  co_await nccl::exchange(at.world, nccl::batch(), at.stream);
  on->hold(nccl_hold_group);
  tutti::request r = tutti::start(nccl::exchange(at.world, itself, at.stream));
  co_await on->until_held();
  r.cancel();
  // Much longer than the patience with calls that wait: calls inside a group do not wait.
  for (int i = 0; i < 50 && on->aborts() == 0; ++i) co_await tutti::sleep_for(10ms);
  TUTTI_EXPECT(on->aborts() == 0);
  on->hold(nccl_hold_none);
  const auto seen = co_await failure_awaiting(&r);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  co_await at.stream.reached();
}

// An operation for which the device has no event does not count as called.
task<> without_an_event(place at, const stage* on, int events) {
  gpu::device_buffer<int> a(at.device, 10);
  const std::vector<int> ones(10, 1);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  const auto sum_up = [&] { return at.world.all_reduce(a, tutti::sum, at.stream); };
  tutti::request r = on->start_short_of_events(at.stream, events, sum_up);
  const auto seen = co_await failure_awaiting(&r);
  TUTTI_EXPECT(seen.code == errc::resources || (events > 0 && seen.code == errc::success));
  TUTTI_EXPECT(on->aborts() == 0);
  const communicator next = co_await at.world.shrink();
  co_await at.stream.upload(a, ones);
  co_await next.all_reduce(a, tutti::sum, at.stream);
  std::vector<int> out(10);
  co_await at.stream.download(out, a);
  TUTTI_EXPECT(out == ones);
}

task<> failing_call(place at, const stage* on) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.world.barrier();
  if (at.world.rank() == 0) on->fail_next(3);
  co_await at.world.barrier();
  const auto seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(seen.code == errc::device_failed);
  TUTTI_EXPECT(seen.says("as the test wanted"));
  co_await at.stream.reached();
}

// The calls are rejected, and the communicator does not fail.
task<> refused(place at, const char* why) {
  gpu::device_buffer<int> a(at.device, 10);
  auto seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(seen.code == errc::not_supported && seen.says(why));
  seen = co_await failure_in(nccl::exchange(at.world, nccl::batch(), at.stream));
  TUTTI_EXPECT(seen.code == errc::not_supported && seen.says(why));
  co_await at.world.barrier();
}

}  // namespace

TEST_CASE("every collective of NCCL") {
  for (const int ranks : {1, 2, 3}) {
    const stage on(ranks);
    run(ranks, collectives);
    CHECK(on.communicators() == 0);
  }
}
TEST_CASE("every collective of NCCL, on adverse devices") {
  const stage on(2, tutti::test::seed_of_this_run() | 1);
  run(2, collectives);
}
TEST_CASE("NCCL serves communicators that are made from the world") {
  const stage on(3);
  run(3, [](place at) { return tutti::test::on_a_split(std::move(at), gpu::backend::nccl); });
  CHECK(on.communicators() == 0);
}
task<> communicators_in_turn(place at, const stage* on) {
  gpu::device_buffer<float> a(at.device, 10);
  for (int i = 0; i < 3; ++i) {
    const communicator next = co_await at.world.duplicate();
    tutti::request r = tutti::start(next.all_reduce(a, tutti::sum, at.stream));
    at.stream.wait(r);
    co_await r;
    co_await at.world.barrier();
    TUTTI_EXPECT(on->communicators() == at.world.size());
  }
  co_await at.world.barrier();
  TUTTI_EXPECT(on->communicators() == at.world.size());  // it waits for the next
  co_await at.world.barrier();
}
TEST_CASE("communicators of the same ranks, one after the other, use one of NCCL's") {
  const stage on(3);
  run(3, [&on](place at) { return communicators_in_turn(std::move(at), &on); });
  CHECK(on.communicators() == 0);
}
TEST_CASE("streams wait for operations of NCCL's that are not enqueued yet") {
  const stage on(2);
  run(2, tutti::test::many_in_flight);
}
TEST_CASE("a rank that does not call is named when the time is over") {
  const stage on(3);
  run(3, tutti::test::without_rank_1, 1s);
}
TEST_CASE("a rank that dies ends what is stuck on the others") {
  const stage on(3);
  const auto seen = tutti::test::failure_of([] { run(3, tutti::test::rank_1_dies); });
  CHECK_MESSAGE(seen.says("rank 1 is ill"), seen.text);
}
TEST_CASE("a call that is taken back ends on all ranks, and NCCL with it; shrink() connects it again") {
  const stage on(3);
  run(3, cancelled_on_rank_0);
  CHECK(on.communicators() == 0);
}
TEST_CASE("a rank that is absent from the first collective leaves NCCL to the others") {
  const stage on(2);
  run(2, [&on](place at) { return absent_from_the_first(std::move(at), &on); }, 5s);
}
TEST_CASE("what NCCL connects for nobody is freed") {
  const stage on(2);
  run(2, [&on](place at) { return ended_while_connecting(std::move(at), &on); });
  CHECK(on.communicators() == 0);
}
TEST_CASE("ranks that NCCL never connects leave it to the next communicator") {
  const stage on(3);
  run(3, [&on](place at) { return left_while_connecting(std::move(at), &on); }, 5s);
  CHECK(on.communicators() == 0);
}
TEST_CASE("gpu::open fails on all ranks if NCCL does not start on one, and starts it again") {
  const stage on(2);
  tutti::init_options options;
  options.timeout = tutti::test::patience;
  tutti::run_local(2, options,
                   [&on](communicator world) { return starts_at_the_second_try(std::move(world), &on); });
}
TEST_CASE("a communicator of NCCL's ends on all ranks, also on those that made no call and keep theirs") {
  const stage on(2);
  run(2, [&on](place at) { return given_up(std::move(at), &on, 1); });
}
TEST_CASE("communicators of NCCL's that end together end each other's wait for the device") {
  const stage on(2);
  run(2, [&on](place at) { return given_up(std::move(at), &on, 3); });
}
TEST_CASE("nothing of NCCL's is freed beside a closed gate") {
  const stage on(1);
  run(1, [&on](place at) { return gates_beside_an_abort(std::move(at), &on); });
}
TEST_CASE("memory is freed although operations of NCCL's follow each other without a pause") {
  const stage on(2);
  const tutti::test::fake_cuda fake;
  run(2, [&fake](place at) { return never_quiet(std::move(at), &fake); });
}
TEST_CASE("a call that does not return is ended from outside") {
  const stage on(2);
  run(2, [&on](place at) { return stuck_in_the_library(std::move(at), &on); });
}
TEST_CASE("the end of a communicator frees nothing before a call that is about to begin") {
  const stage on(1);
  run(1, [&on](place at) { return ended_at_the_entry(std::move(at), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
TEST_CASE("the end of a communicator frees nothing inside a group") {
  const stage on(1);
  run(1, [&on](place at) { return ended_in_a_group(std::move(at), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
// The call returns only because it was aborted, so nothing after it may use the communicator.
TEST_CASE("nothing uses a communicator that was aborted during a call") {
  const stage on(1);
  on.ignore_revocations();
  run(1, [&on](place at) { return stuck_in_the_library(std::move(at), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
TEST_CASE("the thread that interrupts a call ends before the communicator's loop does") {
  const stage on(2);
  on.make_ends_slow(300);
  run(2, [&on](place at) { return stuck_in_the_library(std::move(at), &on); });
  CHECK(on.communicators() == 0);
}
TEST_CASE("an operation of NCCL's that could not be started leaves nothing pending") {
  for (const bool words : {true, false})
    for (int events = 0; events <= 3; ++events) {
      CAPTURE(words);
      CAPTURE(events);
      const stage on(1, 0, words);
      run(1, [&on, events](place at) { return without_an_event(std::move(at), &on, events); }, 2s);
      CHECK(on.communicators() == 0);
    }
}
TEST_CASE("what NCCL says is handed on, to all ranks") {
  const stage on(2);
  run(2, [&on](place at) { return failing_call(std::move(at), &on); });
}
TEST_CASE("two ranks on one GPU are refused") {
  const stage on(1);
  run(
      2, [](place at) { return refused(std::move(at), "two ranks have one device"); }, tutti::test::patience,
      0);
}
TEST_CASE("without NCCL, asking for it says what is missing") {
  const stage on(1);
  const tutti::test::variable none("TUTTI_NCCL_LIBRARY", "/no/such/libnccl.so");
  CHECK(nccl::version() == 0);
  CHECK(nccl::why_not().find("/no/such/libnccl.so") != std::string::npos);
  CHECK(nccl::why_not().find("install NCCL") != std::string::npos);
  run(1, [](place at) { return refused(std::move(at), "NCCL cannot be used on all ranks"); });
}

// One rank, because NCCL needs a GPU for each.
TEST_CASE("every collective with the NCCL that is here") {
  if (const std::string why = cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  if (const std::string why = nccl::why_not(); !why.empty()) TUTTI_SKIP(why);
  MESSAGE("NCCL ", nccl::version());
  run(1, collectives);
}
