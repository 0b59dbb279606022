// SPDX-License-Identifier: Apache-2.0
// NCCL as awaitables, on the stand-ins: every collective, messages, splitting; what ends stuck operations,
// and what is said.
#include "fake_nccl.hpp"
#include "gpu/backends.hpp"
#include "support/skip.hpp"

#include <dlfcn.h>

#include <doctest/doctest.h>
#include <numeric>
#include <tutti/gpu/device_communicator.hpp>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::failure_in;
namespace cuda = tutti::cuda;
namespace gpu = tutti::gpu;
namespace nccl = tutti::nccl;

// Both stand-ins, with a device for each rank.
class stage {
 public:
  explicit stage(int devices, std::uint64_t adversary = 0, bool words = true) : before_(fake_.misuses()) {
    fake_.reset(devices, adversary, 0, words ? 1 : 0);
    library_ = ::dlopen(tutti::test::stand_in("nccl").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
    call<void()>("tutti_fake_nccl_reset")();
  }
  ~stage() {
    CHECK_MESSAGE(fake_.misuses() == before_, fake_.last_misuse());
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
  void make_ends_slow() const { call<void(int)>("tutti_fake_nccl_slow_ends")(300); }
  int communicators() const { return number("communicators"); }
  int held() const { return number("held"); }
  int aborts() const { return number("aborts"); }
  // Starts make() when the device can make `events` more events.
  template <class Make>
  gpu::work start_short_of_events(const gpu::stream& s, int events, const Make& make) const {
    fake_.pause(0, 1);  // no event comes back meanwhile
    fake_.refuse_events_after(0);
    gpu::device_buffer<int> one(s.on(), 1);
    std::vector<gpu::work> takers;  // of events that were made before
    const auto drain = [&] {
      do {
        takers.push_back(tutti::start(s.fill(one, std::byte{0})));
      } while (!takers.back().done());
    };
    drain();
    // It fails, and lets go of the events of operations that are done.
    takers.push_back(tutti::start(make()));
    drain();
    fake_.refuse_events_after(events);
    gpu::work w = tutti::start(make());
    fake_.refuse_events_after(-1);
    fake_.pause(0, 0);
    return w;
  }

 private:
  int number(const char* what) const {
    return call<int()>((std::string("tutti_fake_nccl_") + what).c_str())();
  }
  const tutti::test::variable cuda_{"TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda")};
  const tutti::test::variable nccl_{"TUTTI_NCCL_LIBRARY", tutti::test::stand_in("nccl")};
  tutti::test::fake_cuda fake_;
  std::uint64_t before_;
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

task<> collectives(communicator world) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
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
  co_await s.upload(a, input(me, n));
  co_await s.upload(wide, input(me, n * size));

  // Enqueued after the upload, and read by the stream after it: no host in between.
  gpu::work up = tutti::start(s.upload(a, input(me, n)));
  gpu::work reducing = tutti::start(comm.all_reduce(a, b, tutti::sum, s));
  s.wait(reducing);
  co_await s.download(out, b);
  for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(out[i] == sum_at(i));
  co_await reducing;
  co_await comm.all_reduce(a, b, tutti::avg, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(std::abs(out[7] - sum_at(7) / static_cast<float>(ranks)) < 1e-5f);
  co_await comm.all_reduce(a, b, tutti::premul_sum(0.5f), s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[9] == sum_at(9) / 2);
  co_await comm.reduce(a, b, tutti::sum, root, s);
  co_await s.download(out, b);
  if (me == root) TUTTI_EXPECT(out[999] == sum_at(999));
  co_await comm.broadcast(b, root, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out[999] == sum_at(999));
  co_await comm.all_gather(a, wide_out, s);
  co_await s.download(wide_result, wide_out);
  for (std::size_t r = 0; r < size; ++r)
    TUTTI_EXPECT(wide_result[r * n + 5] == number(static_cast<int>(r), 5));
  co_await comm.gather(a, wide_out, root, s);
  co_await s.download(wide_result, wide_out);
  if (me == root)
    for (std::size_t r = 0; r < size; ++r)
      TUTTI_EXPECT(wide_result[r * n + 6] == number(static_cast<int>(r), 6));
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

  // Messages in a ring, begun together; and one after the other.
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  nccl::batch ring;
  ring.send(a, right).recv(b, left);
  co_await comm.run(ring, s);
  co_await s.download(out, b);
  TUTTI_EXPECT(out == input(left, n));
  if (ranks == 2) {
    if (me == 0) co_await comm.send(a, 1, s);
    if (me == 1) {
      co_await comm.recv(b, 0, s);
      co_await s.download(out, b);
      TUTTI_EXPECT(out == input(0, n));
    }
  }

  // What NCCL cannot do.
  const auto either = [](float x, float y) { return x < y ? x : y; };
  tutti::test::failure seen = co_await failure_in(comm.all_reduce(a, either, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(comm.send(a, right, s, 5));
  TUTTI_EXPECT(seen.code == errc::not_supported);
  seen = co_await failure_in(comm.recv(a, tutti::any_source, s));
  TUTTI_EXPECT(seen.code == errc::not_supported);

  // Registered memory, and NCCL's own.
  nccl::registration known = co_await comm.register_memory(a);
  TUTTI_EXPECT(known);
  auto own = co_await comm.allocate<float>(n);
  co_await comm.all_reduce(a, own.second, tutti::max, s);
  co_await s.download(out, own.second);
  co_await world.barrier();
}

task<> splits(communicator world) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  // The last rank alone is no member; the others are in reverse order.
  const int color = world.rank() == world.size() - 1 ? -1 : 0;
  nccl::communicator part = co_await comm.split(color, -world.rank());
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
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev), other(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  std::vector<gpu::device_buffer<int>> buffers;
  std::vector<gpu::work> works;
  const std::vector<int> ones(100, 1);
  for (int i = 0; i < 20; ++i) {
    gpu::device_buffer<int>& b = buffers.emplace_back(dev, 100);
    gpu::work up = tutti::start(s.upload(b, ones));
    works.push_back(tutti::start(comm.all_reduce(b, tutti::sum, s)));
    // Another stream waits for what the submit thread may not have enqueued yet, and the next comes after
    // that one.
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
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await comm.broadcast(a, 0, s);
  if (world.rank() == 1) {
    // Stays, and awaits something of the host's that comes when the others have given up.
    int token = 0;
    co_await tutti::with_timeout(world.recv(token, 0), 20s);
    // It may begin before it has heard of the failure.
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
struct death {};
task<> dying_rank(communicator world) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  if (world.rank() == 1) throw std::runtime_error("rank 1 is ill");
  const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::peer_failed || seen.code == errc::peer_left ||
               seen.code == errc::communicator_failed);
  TUTTI_EXPECT(seen.says("rank 1"));
  co_await s.reached();
}

task<> stuck_in_the_library(communicator world, const stage* on) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 0) on->block_calls(true);
  co_await world.barrier();
  const auto seen = co_await failure_in(tutti::with_timeout(comm.all_reduce(a, tutti::sum, s), 50ms));
  TUTTI_EXPECT(seen.code != errc::success);
  co_await s.reached();  // the loop was never in it
  co_await world.barrier();
}

task<tutti::test::failure> failure_of(gpu::work* w) {
  std::exception_ptr caught;
  try {
    co_await *w;
  } catch (...) {
    caught = std::current_exception();
  }
  co_return tutti::test::describe(caught);
}

// The submit thread has the communicator and is about to give it to NCCL when the loop thread ends it.
task<> ended_at_the_entry(communicator world, const stage* on) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  on->hold(nccl_hold_entry);
  gpu::work w = tutti::start(comm.all_reduce(a, tutti::sum, s));
  while (on->held() == 0) co_await tutti::sleep_for(1ms);
  comm.abort();
  const auto seen = co_await failure_of(&w);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  const auto after = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
  co_await s.reached();
}

// The submit thread is inside a group when the loop thread ends the communicator, and then fills the group.
task<> ended_in_a_group(communicator world, const stage* on) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10), b(dev, 10);
  nccl::batch itself;
  itself.send(a, 0).recv(b, 0);
  co_await s.fill(a, std::byte{0});
  on->hold(nccl_hold_group);
  gpu::work w = tutti::start(comm.run(itself, s));
  while (on->held() == 0) co_await tutti::sleep_for(1ms);
  comm.abort();
  // Much longer than the patience with a call that waits: what is inside a group does not wait.
  for (int i = 0; i < 50 && on->aborts() == 0; ++i) co_await tutti::sleep_for(10ms);
  TUTTI_EXPECT(on->aborts() == 0);
  on->hold(nccl_hold_none);
  const auto seen = co_await failure_of(&w);
  TUTTI_EXPECT(seen.code == errc::cancelled);
  co_await s.reached();
}

// The call returns only because it was aborted: there is no communicator left for what follows the call.
task<> aborted_in_a_call(communicator world, const stage* on) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<float> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  on->block_calls(true);
  const auto seen =
      co_await failure_in(tutti::with_timeout(comm.all_reduce(a, tutti::premul_sum(0.5f), s), 50ms));
  TUTTI_EXPECT(seen.code != errc::success);
  co_await s.reached();
}

// An operation that the device lacks an event for has not been called, and disturbs no other.
task<> without_an_event(communicator world, const stage* on, int events) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  const std::vector<int> ones(10, 1);
  const auto sum_up = [&] { return comm.all_reduce(a, tutti::sum, s); };
  gpu::work w = on->start_short_of_events(s, events, sum_up);
  const auto seen = co_await failure_of(&w);
  TUTTI_EXPECT(seen.code == (events < 3 ? errc::resources : errc::success));
  co_await s.upload(a, ones);
  co_await comm.all_reduce(a, tutti::sum, s);
  std::vector<int> out(10);
  co_await s.download(out, a);
  TUTTI_EXPECT(out == ones);
}

task<> failing_call(communicator world, const stage* on) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 0) on->fail_next(3);
  co_await world.barrier();
  const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(seen.code != errc::success);
  TUTTI_EXPECT(seen.says("as the test wanted"));
  co_await s.reached();
  co_await world.barrier();
}

task<> revoked(communicator world) {
  const gpu::device dev = cuda::open(world, world.rank());
  const gpu::stream s(dev);
  nccl::communicator comm = co_await nccl::init(world, dev);
  gpu::device_buffer<int> a(dev, 10);
  const std::vector<int> ones(10, 1);
  co_await s.upload(a, ones);
  co_await world.barrier();  // nobody is still in init()
  if (world.rank() == 0) {
    comm.revoke();
    comm.revoke();
  } else {
    const auto seen = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
    TUTTI_EXPECT(seen.code == errc::cancelled || seen.code == errc::communicator_failed);
    TUTTI_EXPECT(seen.says("rank 0 has revoked"));
  }
  const auto after = co_await failure_in(comm.all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
  co_await s.reached();
  // Without the last rank.
  const int color = world.rank() == world.size() - 1 ? -1 : 0;
  communicator survivors = co_await world.split(color, world.rank());
  if (survivors) {
    nccl::communicator smaller = co_await comm.shrink(survivors);
    TUTTI_EXPECT(smaller.size() == world.size() - 1);
    co_await s.upload(a, ones);
    co_await smaller.all_reduce(a, tutti::sum, s);
    std::vector<int> out(10);
    co_await s.download(out, a);
    TUTTI_EXPECT(out[0] == world.size() - 1);
  }
  co_await world.barrier();
}

task<> one_device_for_all(communicator world) {
  const gpu::device dev = cuda::open(world, 0);
  const auto seen = co_await failure_in(nccl::init(world, dev));
  TUTTI_EXPECT(seen.code == errc::device_failed && seen.says("Duplicate GPU"));
}

}  // namespace

TEST_CASE("every collective of NCCL") {
  for (const int ranks : {1, 2, 3}) {
    const stage on(ranks);
    tutti::run_local(ranks, within(tutti::test::patience), collectives);
    CHECK(on.communicators() == 0);
  }
}
TEST_CASE("every collective of NCCL, on adverse devices") {
  const stage on(2, tutti::test::seed_of_this_run() | 1);
  tutti::run_local(2, within(tutti::test::patience), collectives);
}
TEST_CASE("NCCL's communicators are split") {
  const stage on(3);
  tutti::run_local(3, within(tutti::test::patience), splits);
}
TEST_CASE("streams wait for work of NCCL's that is not enqueued yet") {
  const stage on(2);
  tutti::run_local(2, within(tutti::test::patience), many);
}
TEST_CASE("a rank that does not call is named when the time is over") {
  const stage on(3);
  const auto failures = tutti::test::failures_of(3, within(1s), missing_rank);
  for (const auto& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
}
TEST_CASE("a rank that dies ends what is stuck on the others") {
  const stage on(3);
  bool told = false;
  try {
    tutti::run_local(3, within(tutti::test::patience), dying_rank);
  } catch (const std::exception& e) {
    told = std::string(e.what()).find("rank 1 is ill") != std::string::npos;
    CHECK_MESSAGE(told, e.what());
  }
  CHECK(told);
}
TEST_CASE("a call that does not return is ended from outside") {
  const stage on(2);
  tutti::run_local(2, within(tutti::test::patience),
                   [&on](communicator world) { return stuck_in_the_library(std::move(world), &on); });
}
TEST_CASE("the end of a communicator frees nothing before a call that is about to begin") {
  const stage on(1);
  tutti::run_local(1, within(tutti::test::patience),
                   [&on](communicator world) { return ended_at_the_entry(std::move(world), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
TEST_CASE("the end of a communicator frees nothing inside a group") {
  const stage on(1);
  tutti::run_local(1, within(tutti::test::patience),
                   [&on](communicator world) { return ended_in_a_group(std::move(world), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
TEST_CASE("nothing uses a communicator that was aborted during a call") {
  const stage on(1);
  on.ignore_revocations();
  tutti::run_local(1, within(tutti::test::patience),
                   [&on](communicator world) { return aborted_in_a_call(std::move(world), &on); });
  CHECK(on.aborts() == 1);
  CHECK(on.communicators() == 0);
}
TEST_CASE("the thread that interrupts a call ends before the communicator's loop does") {
  const stage on(2);
  on.make_ends_slow();
  tutti::run_local(2, within(tutti::test::patience),
                   [&on](communicator world) { return stuck_in_the_library(std::move(world), &on); });
  CHECK(on.communicators() == 0);
}
TEST_CASE("an operation of NCCL's that could not be started leaves nothing pending") {
  for (const bool words : {true, false})
    for (int events = 0; events <= 3; ++events) {
      CAPTURE(words);
      CAPTURE(events);
      const stage on(1, 0, words);
      tutti::run_local(1, within(2s), [&on, events](communicator world) {
        return without_an_event(std::move(world), &on, events);
      });
      CHECK(on.aborts() == 0);
      CHECK(on.communicators() == 0);
    }
}
TEST_CASE("what NCCL says is handed on, to all ranks") {
  const stage on(2);
  tutti::run_local(2, within(tutti::test::patience),
                   [&on](communicator world) { return failing_call(std::move(world), &on); });
}
TEST_CASE("a communicator is revoked, and shrunk") {
  const stage on(3);
  tutti::run_local(3, within(tutti::test::patience), revoked);
  CHECK(on.communicators() == 0);
}
TEST_CASE("two ranks on one GPU are refused") {
  const stage on(1);
  tutti::run_local(2, within(tutti::test::patience), one_device_for_all);
}
TEST_CASE("without NCCL, asking for it says what is missing") {
  const stage on(1);
  const tutti::test::variable none("TUTTI_NCCL_LIBRARY", "/no/such/libnccl.so");
  CHECK(nccl::version() == 0);
  CHECK(nccl::why_not().find("/no/such/libnccl.so") != std::string::npos);
  tutti::run_local(1, [](communicator world) -> task<> {
    const gpu::device dev = cuda::open(world, 0);
    const auto seen = co_await failure_in(nccl::init(world, dev));
    TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("install NCCL") && seen.says("gpu::open"));
  });
}

// One rank: NCCL wants a GPU for each.
TEST_CASE("every collective with the NCCL that is here") {
  if (const std::string why = cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  if (const std::string why = nccl::why_not(); !why.empty()) TUTTI_SKIP(why);
  MESSAGE("NCCL ", nccl::version());
  tutti::run_local(1, within(tutti::test::patience), collectives);
}
