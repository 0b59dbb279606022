// SPDX-License-Identifier: Apache-2.0
// A SYCL queue given to oneCCL: the stand-in for oneCCL, and SYCL's own headers and runtime where they are
// installed, else a queue of the tests'.
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <optional>
#include <tutti/emulated.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/sycl.hpp>
#include <tutti/tutti.hpp>
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

// Null where SYCL finds no device.
std::optional<sycl::queue> any_queue(std::string& why) {
  try {
    return sycl::queue();
  } catch (const sycl::exception& e) {
    why = e.what();
    return std::nullopt;
  }
}

task<> sums(communicator world, sycl::queue* q) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  std::optional<sycl::queue> lent(*q);
  const oneccl::sycl_queue given = oneccl::queue_of(*lent);
  TUTTI_EXPECT(given.handle != nullptr && given.handle != &*lent);
  lent.reset();  // whoever has lent it may let go of it
  oneccl::communicator comm = co_await oneccl::init(world, dev, given);
  gpu::pinned_buffer<float> a(dev, 10);
  for (float& x : a) x = static_cast<float>(world.rank() + 1);
  co_await comm.all_reduce(gpu::device_span<float>(a.data(), 10), tutti::sum, s);
  TUTTI_EXPECT(a[9] == 3);
  co_await world.barrier();
}

#ifdef TUTTI_SYCL_STAND_IN
task<> fails(communicator world, sycl::queue* q) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  oneccl::communicator comm = co_await oneccl::init(world, dev, oneccl::queue_of(*q));
  gpu::pinned_buffer<float> a(dev, 10);
  co_await world.barrier();
  q->fail();
  const auto seen = co_await tutti::as_result(
      comm.all_reduce(gpu::device_span<float>(a.data(), 10), tutti::premul_sum(2.0F), s));
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
  CHECK(seen.lock()->waits == 2 * 2);  // the first collective of each rank connects it
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
