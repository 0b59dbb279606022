// SPDX-License-Identifier: Apache-2.0
// A SYCL queue passed to the stand-in for oneCCL: a real queue if SYCL is installed, otherwise the tests'
// own.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <optional>
#include <tutti/emulated.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/sycl.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;
namespace oneccl = tutti::oneccl;

class stage {
 public:
  stage() { ::setenv("TUTTI_ONECCL_LIBRARY", TUTTI_FAKE_ONECCL_PATH, 1); }
  ~stage() { ::unsetenv("TUTTI_ONECCL_LIBRARY"); }
};

// Empty if SYCL finds no device.
std::optional<sycl::queue> any_queue(std::string& why) {
  try {
    return sycl::queue();
  } catch (const sycl::exception& e) {
    why = e.what();
    return std::nullopt;
  }
}

gpu::open_options by_oneccl(oneccl::sycl_queue queue) {
  gpu::open_options how;
  how.backend = gpu::backend::oneccl;
  how.queue = std::move(queue);
  return how;
}

task<> sums(communicator world, sycl::queue* q) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  std::optional<sycl::queue> lent(*q);
  const gpu::open_options how = by_oneccl(oneccl::queue_of(*lent));
  TUTTI_EXPECT(how.queue.handle != nullptr && how.queue.handle != &*lent);
  lent.reset();  // the lender may release it
  co_await gpu::open(world, dev, how);
  gpu::pinned_buffer<float> a(dev, 10);
  const gpu::device_span<float> x(a.data(), 10);
  for (float& v : a) v = static_cast<float>(world.rank() + 1);
  co_await world.all_reduce(x, tutti::sum, s);  // connects oneCCL, too
  co_await world.all_reduce(x, tutti::max, s);
  TUTTI_EXPECT(a[9] == 3);
  co_await world.barrier();
}

#ifdef TUTTI_SYCL_STAND_IN
task<> fails(communicator world, sycl::queue* q) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  const gpu::open_options how = by_oneccl(oneccl::queue_of(*q));
  co_await gpu::open(world, dev, how);
  // It outlives the call of oneCCL, which the other rank's failure does not end.
  static float memory[2][10];
  const gpu::device_span<float> x(memory[world.rank()], 10);
  co_await world.all_reduce(x, tutti::sum, s);
  co_await world.barrier();
  q->fail();
  const auto seen = co_await tutti::as_result(world.all_reduce(x, tutti::premul_sum(2.0F), s));
  TUTTI_EXPECT(seen.error == errc::device_failed);
  TUTTI_EXPECT(seen.message.find("as the test wanted") != std::string::npos);
}
#endif

}  // namespace

TEST_CASE("a SYCL queue is oneCCL's as long as the communicator lives") {
  const stage on;
  std::string why;
  std::optional<sycl::queue> q = any_queue(why);
  if (!q) TUTTI_SKIP(why);
  tutti::run_local(2, [&q](communicator world) { return sums(std::move(world), &*q); });
#ifdef TUTTI_SYCL_STAND_IN
  const auto seen = q->watched();
  CHECK(seen.lock()->waits == 2 * 2);  // two collectives of two ranks
  CHECK(seen.use_count() == 1);
  q.reset();
  CHECK(seen.expired());
#endif
}

#ifdef TUTTI_SYCL_STAND_IN
TEST_CASE("what a SYCL queue throws ends the operation") {
  const stage on;
  sycl::queue q;
  tutti::run_local(2, [&q](communicator world) { return fails(std::move(world), &q); });
}
#endif
