// SPDX-License-Identifier: Apache-2.0
// Operations on device memory allocate nothing in steady state. A program of its own, because it replaces
// operator new and delete. It counts what the ranks' threads allocate, in the emulated device's driver and
// the stand-in for CUDA, too.
#include "gpu/steady_programs.hpp"
#include "support/skip.hpp"
#include "support/steady_state.hpp"

#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <utility>

using namespace tutti;
using namespace tutti::test;

namespace {

using opening = std::function<gpu::device(const communicator&)>;

task<> on_device(communicator world, const opening* open, gpu::backend by) {
  gpu::open_options how;
  how.chunk_bytes = 4096;
  if (by == gpu::backend::staged) how.backend = by;
  const device_rank here = co_await open_device_rank(world, (*open)(world), how);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(here.a, sum, here.at.stream)).with == by);
  co_await allocate_nothing(world, here, device_programs, 50);
}

}  // namespace

TEST_CASE("operations on memory of devices allocate nothing in steady state") {
#ifdef TUTTI_TEST_ADDRESS_SANITIZER
  TUTTI_SKIP("AddressSanitizer: frames are not recycled, so that it sees their use after free");
#endif
  const auto check = [](const opening& open, gpu::backend by) {
    CAPTURE(std::string(gpu::name_of(by)));
    CHECK_NOTHROW(run_local(2, [&](communicator world) { return on_device(std::move(world), &open, by); }));
  };
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged}) {
    emulated::options how;
    how.memory_bytes = 16 << 20;
    how.timeline = by == gpu::backend::staged;
    const auto device = std::make_shared<emulated::emulated_device>(how);
    check([device](const communicator& world) { return emulated::open(world, device); }, by);
  }
  // NCCL needs a device for each rank.
  const variable cuda("TUTTI_CUDA_LIBRARY", stand_in("cuda")), nccl("TUTTI_NCCL_LIBRARY", stand_in("nccl"));
  const variable kernels("TUTTI_CUDA_KERNELS", stand_in("cuda"));
  fake_cuda().reset(2, 0, 0, 1);
  check([](const communicator& world) { return cuda::open(world, world.rank()); }, gpu::backend::nccl);
}
