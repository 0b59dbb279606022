// SPDX-License-Identifier: Apache-2.0
// Nothing is allocated in steady state by operations on memory of devices. A program of its own: it replaces operator
// new and delete. What counts is what the ranks' threads allocate, the emulated device's driver among it.
#include "gpu/steady_programs.hpp"
#include "support/skip.hpp"
#include "support/steady_state.hpp"

#include <doctest/doctest.h>
#include <memory>
#include <tutti/emulated.hpp>
#include <utility>

using namespace tutti;
using namespace tutti::test;

namespace {

task<> on_device(communicator world, std::shared_ptr<emulated::emulated_device> device, gpu::backend by) {
  gpu::open_options how;
  how.chunk_bytes = 4096;
  if (by == gpu::backend::staged) how.backend = by;
  const device_rank here = co_await open_device_rank(world, emulated::open(world, device), how);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(here.a, sum, here.at.stream)).with == by);
  co_await allocate_nothing(world, here, device_programs, 50);
}

}  // namespace

TEST_CASE("operations on memory of devices allocate nothing in steady state") {
#ifdef TUTTI_TEST_ADDRESS_SANITIZER
  TUTTI_SKIP("AddressSanitizer: frames are not recycled, so that it sees their use after free");
#endif
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged}) {
    CAPTURE(gpu::name_of(by));
    emulated::options how;
    how.memory_bytes = 16 << 20;
    how.timeline = by == gpu::backend::staged;
    const auto device = std::make_shared<emulated::emulated_device>(how);
    CHECK_NOTHROW(run_local(2, [&](communicator world) { return on_device(std::move(world), device, by); }));
  }
}
