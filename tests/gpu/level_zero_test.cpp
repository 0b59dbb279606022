// SPDX-License-Identifier: Apache-2.0
// Particular to Level Zero: errors without it, several devices, lists and kernels of the program, and events
// that are reused.
#include "device/open_once.hpp"
#include "gpu/backends.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <chrono>
#include <fstream>
#include <iterator>
#include <tutti/level_zero.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::failure_of;
namespace gpu = tutti::gpu;
namespace level_zero = tutti::level_zero;

#define NEEDS_LEVEL_ZERO() \
  if (const std::string why = tutti::test::level_zero_driver::why_not(); !why.empty()) TUTTI_SKIP(why)

#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
const char *const missing_file = "/no/such/libze_loader.so", *const cure = "libze1";
#else  // built without the header
const char *const missing_file = "level_zero/ze_api.h", *const cure = "libze-dev";
#endif

task<> missing(communicator world) {
  const auto seen = failure_of([&world] { level_zero::open(world, 0); });
  TUTTI_EXPECT(seen.code == errc::not_supported);
  TUTTI_EXPECT(seen.says(missing_file) && seen.says(cure) && seen.says("emulated"));
  co_return;
}

task<> opened(communicator world) {
  const gpu::device a = level_zero::open(world, 0), again = level_zero::open(world, 0),
                    other = level_zero::open(world, 1);
  TUTTI_EXPECT(&a.state() == &again.state());
  TUTTI_EXPECT(&a.state() != &other.state());
  TUTTI_EXPECT(a.name() == "level_zero device 0 (stand-in)");
  const auto seen = failure_of([&world] { level_zero::open(world, 99); });
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("there are"));
  const level_zero::handles known = level_zero::native(other);
  TUTTI_EXPECT(known.driver != nullptr && known.device != nullptr && known.context != nullptr);
  level_zero::stream s(world, 1);
  TUTTI_EXPECT(s.get() != nullptr);
  const gpu::stream borrowed = level_zero::stream::borrow(other, s.get());
  gpu::device_buffer<int> x(other, 100);
  // Both handles are one queue: work of either comes before later work of the other.
  tutti::request filling = tutti::start(s.fill(x, std::byte{5}));
  std::vector<int> seen_by_host(100);
  co_await borrowed.download(seen_by_host, x);
  TUTTI_EXPECT(seen_by_host == std::vector<int>(100, 0x05050505));
  co_await filling;
  // Each device has its own memory.
  gpu::device_buffer<int> y(a, 100);
  TUTTI_EXPECT(a.describe(y.data()).device == 0 && other.describe(x.data()).device == 1);
  TUTTI_EXPECT(other.describe(x.data()).bytes == 400 && other.describe(x.data()).base == x.data());
  const gpu::device emulated = tutti::emulated::open(world);
  TUTTI_EXPECT(failure_of([&] { level_zero::stream wrong(emulated); }).code == errc::invalid_argument);
  TUTTI_EXPECT(failure_of([&] { level_zero::native(emulated); }).code == errc::invalid_argument);
}

// Each rank has its own device.
task<> two_devices(communicator world) {
  const gpu::device dev = level_zero::open(world, world.rank());
  co_await gpu::open(world, dev);
  const gpu::stream s(dev);
  gpu::device_buffer<float> a(dev, 100000);
  std::vector<float> v(100000, static_cast<float>(world.rank() + 1));
  co_await s.upload(a, v);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(a, tutti::sum, s)).with == gpu::backend::staged);
  co_await world.all_reduce(a, tutti::sum, s);
  co_await s.download(v, a);
  for (const float x : v) TUTTI_EXPECT(x == 3.0f);
}

std::vector<std::byte> file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  return std::vector<std::byte>(bytes, bytes + text.size());
}

#ifdef TUTTI_NATIVE_KERNELS_PATH
task<> own_kernels(communicator world) {
  const gpu::device dev = level_zero::open(world, 0);
  const gpu::stream s(dev);
  const std::vector<std::byte> image = file(TUTTI_NATIVE_KERNELS_PATH);
  const level_zero::module kernels(dev, image, level_zero::module::format::native);
  void* const triple = kernels.kernel("triple_and_add");
  TUTTI_EXPECT(kernels.kernel("triple_and_add") == triple);
  TUTTI_EXPECT(failure_of([&] { kernels.kernel("none_such"); }).says("none_such"));
  const auto refused = failure_of([&] { level_zero::module spirv(dev, image); });
  TUTTI_EXPECT(refused.code == errc::invalid_argument && refused.says("BUILD_FAILURE"));
  // A loader that wraps handles gives no log.
  const bool wrapped = level_zero::device_count() > 2 || ::getenv("ZE_ENABLE_LOADER_INTERCEPT") != nullptr;
  TUTTI_EXPECT(wrapped || refused.says("no SPIR-V"));

  constexpr int n = 1000;
  gpu::device_buffer<int> x(dev, n);
  co_await s.fill(x, std::byte{0});
  level_zero::launch_size size;
  size.groups = 4;
  for (int i = 1; i <= 5; ++i) level_zero::launch(s, triple, size, x.data(), n, i);
  std::vector<int> out(n);
  co_await s.download(out, x);
  for (const int v : out) TUTTI_EXPECT(v == ((((1 * 3 + 2) * 3) + 3) * 3 + 4) * 3 + 5);
  // An access past the end of the buffer.
  level_zero::launch(s, triple, size, x.data(), n + 1, 0);
  const auto seen = co_await tutti::as_result(s.reached());
  TUTTI_EXPECT(seen.error == errc::device_failed);
}
#endif

// More points and waits than events: events are reused, but none too early.
task<> recycling(communicator world) {
  const gpu::device dev = level_zero::open(world, 0);
  const gpu::stream first(dev), second(dev), idle(dev);
  gpu::device_buffer<int> a(dev, 64), b(dev, 64);
  std::vector<int> in(64), out(64);
  for (int round = 0; round < 300; ++round) {
    std::fill(in.begin(), in.end(), round);
    tutti::request up = tutti::start(first.upload(a, in));
    second.wait(first);
    tutti::request over = tutti::start(second.copy(b, a));
    first.wait(second);
    idle.wait(second);  // a stream that only waits
    if (round % 50 == 49) {
      co_await second.download(out, b);
      TUTTI_EXPECT(out == in);
    }
  }
  co_await first.reached();
  co_await second.download(out, b);
  TUTTI_EXPECT(out == in);
}

// One rank destroys handles while the other creates some at the same addresses.
task<> coming_and_going(communicator world) {
  const gpu::device dev = level_zero::open(world, world.rank());
  for (int i = 0; i < 2000; ++i) {
    const gpu::stream s(dev);
    co_await s.reached();
  }
}

}  // namespace

TEST_CASE("without Level Zero, asking for it says what is missing") {
  static_cast<void>(tutti::test::level_zero_driver::why_not());
  ::setenv("TUTTI_LEVEL_ZERO_LIBRARY", "/no/such/libze_loader.so", 1);
  CHECK(level_zero::device_count() == 0);
  CHECK(level_zero::why_not().find(missing_file) != std::string::npos);
  tutti::run_local(1, missing);
  ::unsetenv("TUTTI_LEVEL_ZERO_LIBRARY");
}

TEST_CASE("devices of Level Zero are opened once for each loop") {
  NEEDS_LEVEL_ZERO();
  const tutti::test::level_zero_driver below;
  below.reset(0, 0, 0);
  const std::uint64_t before = below.misuses();
  CHECK(level_zero::device_count() >= 2);
  tutti::run_local(2, opened);
  CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
}

TEST_CASE("ranks use two devices of Level Zero") {
  NEEDS_LEVEL_ZERO();
  for (const std::uint64_t adversary : {std::uint64_t{0}, tutti::test::seed_of_this_run() | 1}) {
    const tutti::test::level_zero_driver below;
    below.reset(adversary, 0, 0);
    const std::uint64_t before = below.misuses();
    tutti::run_local(2, two_devices);
    CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
  }
}

TEST_CASE("streams of Level Zero come and go on several threads") {
  NEEDS_LEVEL_ZERO();
  const tutti::test::level_zero_driver below;
  below.reset(0, 0, 0);
  const std::uint64_t before = below.misuses();
  tutti::run_local(2, coming_and_going);
  CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
}

TEST_CASE("kernels of the program run on devices of Level Zero") {
  NEEDS_LEVEL_ZERO();
#ifdef TUTTI_NATIVE_KERNELS_PATH
  const tutti::test::level_zero_driver below;
  for (const int in_order : {0, 1}) {
    below.reset(in_order == 0 ? tutti::test::seed_of_this_run() | 1 : 0, 0, in_order);
    const std::uint64_t before = below.misuses();
    tutti::run_local(1, own_kernels);
    CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
  }
#endif
}

TEST_CASE("events of Level Zero are used again when nobody waits for them") {
  NEEDS_LEVEL_ZERO();
  const tutti::test::level_zero_driver below;
  for (const std::uint64_t adversary : {std::uint64_t{0}, tutti::test::seed_of_this_run() | 1}) {
    below.reset(adversary, 0, 0);
    const std::uint64_t before = below.misuses();
    tutti::run_local(1, recycling);
    CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
  }
}

TEST_CASE("a list whose last event the driver refuses is destroyed only when its commands are done") {
  NEEDS_LEVEL_ZERO();
  const tutti::test::level_zero_driver below;
  below.reset(0, 0, 0);
  const std::uint64_t before = below.misuses();
  {
    const auto on = level_zero::driver_at(0);
    void *const ending = on->make_stream(false), *const other = on->make_stream(false);
    const gpu::impl::word opened = on->make_word();
    below.pause(0, 1);
    on->write(ending, opened, 1);
    below.refuse_barriers(1);
    on->destroy_stream(ending);
    below.refuse_barriers(0);
    below.pause(0, 0);
    on->wait(other, opened, 1);
    void* const end = on->make_event();
    on->record(end, other);
    CHECK(on->wait_until([&] { return on->query(end); }, other, std::chrono::seconds(20)));
    on->destroy_event(end);
    on->destroy_stream(other);
    on->destroy_word(opened);
  }
  CHECK_MESSAGE(below.misuses() == before, below.last_misuse());
}
