// SPDX-License-Identifier: Apache-2.0
// Particular to the emulated device: memory that the host cannot access, checked accesses, and kernels of the
// program.
#include "base/unique_fd.hpp"
#include "gpu/backends.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <atomic>
#include <cerrno>
#include <semaphore>
#include <thread>
#include <tutti/tutti.hpp>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;
namespace emulated = tutti::emulated;

task<> own_kernels(communicator world) {
  const gpu::device dev = emulated::open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<float> x(dev, 1000);
  co_await s.fill(x, std::byte{0});
  for (int i = 0; i < 10; ++i)
    emulated::launch(s, [span = x.span()](emulated::access a) {
      float* const p = a.at(span);
      for (std::size_t k = 0; k < span.size(); ++k) p[k] += static_cast<float>(k);
    });
  std::vector<float> out(1000);
  co_await s.download(out, x);
  TUTTI_EXPECT(out[999] == 9990.0f);
}

task<> bad_accesses(communicator world) {
  for (int kind = 0; kind < 3; ++kind) {
    auto emulated_device = std::make_shared<emulated::emulated_device>();
    const gpu::device dev = emulated::open(world, emulated_device);
    const gpu::stream s(dev);
    gpu::device_buffer<int> x(dev, 100);
    std::vector<int> host(100);
    gpu::device_span<int> wrong(x.data(), 101);  // one too many
    if (kind == 1) wrong = {host.data(), 100};   // not pinned
    if (kind == 2) {                             // freed
      gpu::device_buffer<int> gone(dev, 100);
      wrong = gone.span();
    }
    emulated::launch(s, [wrong](emulated::access a) { a.at(wrong)[0] = 1; });
    const auto seen = co_await tutti::as_result(s.reached());
    TUTTI_EXPECT(seen.error == errc::device_failed);
  }
}

// A program that sees the failure may free memory that work in flight would have accessed.
task<> failures_wait_for_work_in_flight(communicator world) {
  emulated::options how;
  how.workers = 2;
  std::binary_semaphore begun(0), may_end(0);
  std::atomic<bool> over{false};
  int host = 0;
  auto emulated_device = std::make_shared<emulated::emulated_device>(how);
  const gpu::device dev = emulated::open(world, emulated_device);
  const gpu::stream slow(dev), faulty(dev);
  emulated::launch(slow, [&](emulated::access) {
    begun.release();
    const bool told = may_end.try_acquire_for(tutti::test::patience);
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    over.store(told);
  });
  TUTTI_EXPECT(begun.try_acquire_for(tutti::test::patience));
  emulated::launch(faulty,
                   [wrong = gpu::device_span<int>(&host, 1)](emulated::access a) { a.at(wrong)[0] = 1; });
  bool early = false;
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::yield();
    early = early || emulated_device->failed();
  }
  may_end.release();
  const auto seen = co_await tutti::as_result(faulty.reached());
  TUTTI_EXPECT(seen.error == errc::device_failed);
  TUTTI_EXPECT(!early && over.load());
}

// A system call reports EFAULT where a dereference would end the process.
task<> untouchable(communicator world) {
  const gpu::device dev = emulated::open(world);
  gpu::device_buffer<int> x(dev, 1000);
  int ends[2];
  TUTTI_EXPECT(::pipe2(ends, O_CLOEXEC) == 0);
  const tutti::base::unique_fd in(ends[0]), out(ends[1]);
  int mine = 0;
  TUTTI_EXPECT(::write(out.get(), &mine, sizeof mine) == sizeof mine);
  errno = 0;
  TUTTI_EXPECT(::write(out.get(), x.data(), sizeof mine) == -1 && errno == EFAULT);
  errno = 0;
  TUTTI_EXPECT(::read(in.get(), x.data(), sizeof mine) == -1 && errno == EFAULT);
  co_return;
}

}  // namespace

TEST_CASE("kernels of the program run on the emulated device") { tutti::run_local(1, own_kernels); }
TEST_CASE("an illegal access fails the device") { tutti::run_local(1, bad_accesses); }
TEST_CASE("a device has failed when nothing runs on it any more") {
  tutti::run_local(1, failures_wait_for_work_in_flight);
}

TEST_CASE("the host cannot touch memory of the device") { tutti::run_local(1, untouchable); }
