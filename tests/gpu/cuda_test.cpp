// SPDX-License-Identifier: Apache-2.0
// Particular to CUDA: errors without it, several loops and devices, and streams of the program.
#include "cuda/cuda_api.hpp"
#include "device/driver.hpp"
#include "gpu/backends.hpp"
#include "support/command.hpp"
#include "support/skip.hpp"

#include <dlfcn.h>

#include <doctest/doctest.h>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <tutti/cuda.hpp>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;
namespace cuda = tutti::cuda;

task<> missing(communicator world) {
  const auto seen = tutti::test::failure_of([&world] { cuda::open(world, 0); });
  TUTTI_EXPECT(seen.code == errc::not_supported);
  TUTTI_EXPECT(seen.says("/no/such/libcuda.so") && seen.says("driver is not installed") &&
               seen.says("emulated"));
  co_return;
}

task<> opened(communicator world) {
  const gpu::device a = cuda::open(world, 0), again = cuda::open(world, 0), other = cuda::open(world, 1);
  TUTTI_EXPECT(&a.state() == &again.state());
  TUTTI_EXPECT(&a.state() != &other.state());
  TUTTI_EXPECT(a.name() == "cuda device 0 (stand-in)");
  const auto seen = tutti::test::failure_of([&world] { cuda::open(world, 2); });
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("there are 2"));
  cuda::stream s(world, 1);
  TUTTI_EXPECT(s.get() != nullptr);
  const gpu::stream borrowed = cuda::stream::borrow(other, s.get());
  gpu::device_buffer<int> x(other, 100);
  tutti::request w = tutti::start(s.fill(x, std::byte{5}));
  co_await borrowed.reached();
  TUTTI_EXPECT(w.done());
  const gpu::device emulated = tutti::emulated::open(world);
  TUTTI_EXPECT(tutti::test::failure_of([&] { cuda::stream wrong(emulated); }).code == errc::invalid_argument);
  TUTTI_EXPECT(tutti::test::failure_of([&] { s.wait(gpu::stream(emulated)); }).code == errc::not_supported);
}

// A stream of one device waits for one of another, and for a request there.
task<> two_devices(communicator world, gpu::device first, gpu::device second) {
  const gpu::stream x(first), y(second);
  for (int round = 0; round < 20; ++round) {
    gpu::device_buffer<int> a(first, 100), b(second, 100);
    gpu::gate g = y.close();
    tutti::request fill = tutti::start(y.fill(b, std::byte{1}));
    round % 2 == 0 ? x.wait(y) : x.wait(fill);
    tutti::request behind = tutti::start(x.fill(a, std::byte{2}));
    co_await gpu::stream(first).reached();
    TUTTI_EXPECT(!fill.done() && !behind.done());
    g.open();
    co_await behind;
    co_await y.reached();
    TUTTI_EXPECT(fill.done());
  }
  co_await world.barrier();
}

// A device with room for one of these buffers.
task<> one_buffer_after_the_other(communicator world) {
  const gpu::device dev = cuda::open(world, 0);
  const gpu::stream s(dev), other(dev);
  using buffer = gpu::device_buffer<std::byte>;
  constexpr std::size_t bytes = std::size_t{40} << 20;
  for (int i = 0; i < 20; ++i) {
    const buffer b(dev, bytes);
    co_await s.fill(b, std::byte{1});
  }
  std::optional<buffer> kept(std::in_place, dev, bytes);
  const auto full = tutti::test::failure_of([&] { const buffer more(dev, bytes); });
  TUTTI_EXPECT(full.code == errc::resources && !full.says("dropped"));
  gpu::gate g = other.close();
  kept.reset();
  const auto held = tutti::test::failure_of([&] { const buffer more(dev, bytes); });
  TUTTI_EXPECT(held.code == errc::resources);
  TUTTI_EXPECT(held.says("41943040 bytes that were dropped are not freed before all gates"));
  g.open();
  const buffer last(dev, bytes);
}

// While the program captures a stream, another has work, and so has the captured one from before.
task<> checked_while_capturing(communicator world, const tutti::test::fake_cuda* fake) {
  const gpu::device dev = cuda::open(world, 0);
  const gpu::stream s(dev), other(dev), captured(dev);
  gpu::gate g = other.close();
  s.wait(other);
  tutti::request before = tutti::start(s.reached()), beside = tutti::start(other.reached());
  for (const gpu::stream& of : {s, captured}) {
    fake->set_capturing(of.native(), 1);
    co_await tutti::sleep_for(3 * gpu::impl::between_health_checks);
    fake->set_capturing(of.native(), 0);
  }
  g.open();
  co_await before;
  co_await beside;
}

// Calls of a program beside tutti, on the stand-in, which counts what CUDA forbids.
task<> calls_of_a_program(communicator world, const tutti::test::fake_cuda* fake) {
  const gpu::device dev = cuda::open(world, 0);
  const gpu::stream s(dev);
  void* const library = ::dlopen(tutti::test::stand_in("cuda").c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto synchronize = reinterpret_cast<int (*)(void*)>(::dlsym(library, "cuStreamSynchronize"));
  const auto set_current = reinterpret_cast<int (*)(void*)>(::dlsym(library, "cuCtxSetCurrent"));
  const auto retain = reinterpret_cast<int (*)(void**, int)>(::dlsym(library, "cuDevicePrimaryCtxRetain"));
  TUTTI_EXPECT(synchronize != nullptr && set_current != nullptr && retain != nullptr);
  auto misuse = [fake, before = fake->misuses()]() mutable {
    const bool is = fake->misuses() == before + 1;
    before = fake->misuses();
    return is ? std::string(fake->last_misuse()) : std::string();
  };

  TUTTI_EXPECT(synchronize(s.native()) != 0);
  TUTTI_EXPECT(misuse() == "cuStreamSynchronize without a context");
  void* context = nullptr;
  TUTTI_EXPECT(retain(&context, 0) == 0 && set_current(context) == 0);
  gpu::device_buffer<int> x(dev, 100);
  tutti::request filling = tutti::start(s.fill(x, std::byte{1}));
  TUTTI_EXPECT(synchronize(s.native()) == 0);
  TUTTI_EXPECT(misuse() == "");
  fake->set_capturing(s.native(), 1);
  TUTTI_EXPECT(synchronize(s.native()) != 0);
  fake->set_capturing(s.native(), 0);
  TUTTI_EXPECT(misuse() == "cuStreamSynchronize of a stream that is being captured");
  TUTTI_EXPECT(synchronize(&context) != 0);
  TUTTI_EXPECT(misuse() == "cuStreamSynchronize of a handle that has gone");
  co_await filling;

  // Kernels: an unknown one, one without parameters, one without threads.
  const cuda::module kernels(dev, "");
  TUTTI_EXPECT(tutti::test::failure_of([&] { kernels.kernel("example_nothing"); }).says("example_nothing"));
  void* const kernel = kernels.kernel("tutti_sum_float32");
  TUTTI_EXPECT(tutti::test::failure_of([&] { cuda::launch(s, kernel, {}); }).code != errc::success);
  TUTTI_EXPECT(misuse() == "cuLaunchKernel without parameters");
  TUTTI_EXPECT(tutti::test::failure_of([&] { cuda::launch(s, kernel, {0, 256}, 1); }).code != errc::success);
  TUTTI_EXPECT(misuse() == "cuLaunchKernel of no threads, or of more than a block has");
  TUTTI_EXPECT(set_current(nullptr) == 0);
}

// The stand-in's cuDevicePrimaryCtxRetain takes until the loop has gone on, and at most a few seconds.
struct slow_start {
  std::atomic<int> turns{0};
  std::atomic<bool> loop_went_on{false};
  bool open = false;

  static void wait(void* self) {
    auto& of = *static_cast<slow_start*>(self);
    const int before = of.turns;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (of.turns < before + 3 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    of.loop_went_on = of.turns >= before + 3;
  }
};
task<> count_turns(communicator world, slow_start* s) {
  while (!s->open) {
    co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
    ++s->turns;
  }
}
task<> open_slowly(communicator world, slow_start* s) {
  gpu::open_options how;
  how.kind = gpu::device_kind::cuda;
  const gpu::device device = co_await gpu::open(world, how);
  s->open = true;
  TUTTI_EXPECT(device.name() == "cuda device 0 (stand-in)");
}
task<> open_beside_work(communicator world, slow_start* s) {
  tutti::scope both;
  both.spawn(count_turns(world, s));
  both.spawn(open_slowly(world, s));
  co_await both.join();
}

}  // namespace

TEST_CASE("processes that share a GPU share its hardware queues") {
  CHECK(cuda::abi::hardware_queues(1, 1) == 32);
  CHECK(cuda::abi::hardware_queues(8, 8) == 32);
  CHECK(cuda::abi::hardware_queues(4, 1) == 24);
  CHECK(cuda::abi::hardware_queues(7, 2) == 24);
  CHECK(cuda::abi::hardware_queues(100, 1) == 8);
  CHECK(cuda::abi::hardware_queues(3, 0) == 32);
}

TEST_CASE("without CUDA, asking for it says what is missing") {
  const tutti::test::variable none("TUTTI_CUDA_LIBRARY", "/no/such/libcuda.so");
  CHECK(cuda::device_count() == 0);
  CHECK(cuda::why_not().find("/no/such/libcuda.so") != std::string::npos);
  tutti::run_local(1, missing);
}

TEST_CASE("devices are opened once for each loop") {
  const tutti::test::fake_cuda fake;
  const std::uint64_t before = fake.misuses();
  fake.reset(2, 0, 0, 1);
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  CHECK(cuda::device_count() == 2);
  tutti::run_local(2, opened);
  CHECK(fake.misuses() == before);
}

TEST_CASE("streams of two devices wait for each other") {
  const tutti::test::fake_cuda fake;
  const std::uint64_t before = fake.misuses();
  fake.reset(2, 0, 0, 1);
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  tutti::run_local(
      1, [](communicator world) { return two_devices(world, cuda::open(world, 0), cuda::open(world, 1)); });
  tutti::run_local(1, [](communicator world) {
    using tutti::emulated::default_device;
    return two_devices(world, tutti::emulated::open(world, default_device(0)),
                       tutti::emulated::open(world, default_device(1)));
  });
  CHECK_MESSAGE(fake.misuses() == before, std::string(fake.last_misuse()));
}

TEST_CASE("memory that was dropped makes room for the next") {
  const tutti::test::fake_cuda fake;
  const std::uint64_t before = fake.misuses();
  fake.reset(1, 0, 0, 1);
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  tutti::run_local(1, one_buffer_after_the_other);
  CHECK_MESSAGE(fake.misuses() == before, std::string(fake.last_misuse()));
}

TEST_CASE("the health check leaves captures alone") {
  const tutti::test::fake_cuda fake;
  const std::uint64_t before = fake.misuses();
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  fake.reset(1, 0, 0, 1);
  tutti::run_local(1,
                   [&fake](communicator world) { return checked_while_capturing(std::move(world), &fake); });
  CHECK_MESSAGE(fake.misuses() == before, std::string(fake.last_misuse()));
}

TEST_CASE("the loop goes on while gpu::open starts CUDA") {
  const tutti::test::fake_cuda fake;
  fake.reset(1, 0, 0, 1);
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  slow_start slow;
  fake.at_retain(&slow_start::wait, &slow);
  tutti::run_local(1, [&slow](communicator world) { return open_beside_work(std::move(world), &slow); });
  fake.at_retain(nullptr, nullptr);
  CHECK(slow.loop_went_on);
}

TEST_CASE("calls of a program's own keep CUDA's rules") {
  const tutti::test::fake_cuda fake;
  fake.reset(1, 0, 0, 1);
  const tutti::test::variable library("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  tutti::run_local(1, [&fake](communicator world) { return calls_of_a_program(std::move(world), &fake); });
}

TEST_CASE("a GPU is here: every test of devices runs on it as well") {
  if (const std::string why = cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  CHECK(tutti::test::backends().back().name == "CUDA");
  MESSAGE("on ", cuda::device_count(), " GPUs");
}
