// SPDX-License-Identifier: Apache-2.0
// Operations on device memory allocate nothing in steady state. A program of its own, because it replaces
// operator new and delete. It counts what the ranks' threads allocate, in the emulated device's driver and
// the stand-in for CUDA, too.
#include "gpu/steady_programs.hpp"
#include "support/skip.hpp"
#include "support/steady_state.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/window.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

using opening = std::function<gpu::device(const communicator&)>;

struct training {
  data_parallel* parallel = nullptr;
  gpu::stream after;  // empty: gradients in host memory
};
task<> steps_of_training(training t, int steps) {
  for (int i = 0; i < steps; ++i) {
    if (t.after) {
      t.parallel->ready(1, t.after);
      co_await t.parallel->reduced(t.after);
      co_await t.after.reached();
    } else {
      t.parallel->ready(1);
      co_await t.parallel->reduced();
    }
  }
}
struct named_training {
  const char* name;
  task<> (*body)(training t, int steps);
};
constexpr named_training training_programs[] = {{"data_parallel", &steps_of_training}};

task<> trains(device_rank r, std::shared_ptr<bucketing::any_gradient_hook> hook, bool uneven) {
  std::vector<float> x(3000), y(100);
  const std::vector<gradient_view> of_host{gradient_view(x), gradient_view(y)};
  const std::vector<gpu::device_values> of_device{r.a, r.b};
  data_parallel_options o;
  o.uneven = uneven;
  training t;
  data_parallel host = co_await data_parallel::create(r.at.world, of_host, o);
  o.hook = hook;
  data_parallel device = co_await data_parallel::create(r.at.world, of_device, o);
  t.parallel = &host;
  co_await allocate_nothing(r.at.world, t, training_programs, 50);
  t.parallel = &device;
  t.after = r.at.stream;
  co_await allocate_nothing(r.at.world, t, training_programs, 50);
}

struct windowed : device_rank {
  const gpu::window<float>* window;
  std::uint64_t* signals;
};
struct named_puts {
  const char* name;
  task<> (*body)(windowed r, int times);
};
constexpr named_puts window_programs[] = {
    {"put_signal, wait_signal, get", [](windowed r, int times) -> task<> {
       while (times-- > 0) {
         co_await r.window->put_signal(r.a, other_of(r), 0, 0, r.at.stream);
         co_await r.window->wait_signal(0, [least = ++*r.signals](std::uint64_t n) { return n >= least; });
         co_await r.window->get(r.a, other_of(r), 0, r.at.stream);
       }
     }}};

task<> on_device(communicator world, const opening* open, gpu::backend by) {
  gpu::open_options how;
  how.chunk_bytes = 4096;
  if (by == gpu::backend::staged) how.backend = by;
  const device_rank here = co_await open_device_rank(world, (*open)(world), how);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(here.a, sum, here.at.stream)).with == by);
  co_await allocate_nothing(world, here, device_programs, 50);
  if (by != gpu::backend::nccl) {
    gpu::device_buffer<float> field(here.at.device, device_floats);
    const gpu::window w = co_await world.window(field);
    std::uint64_t signals = 0;
    co_await allocate_nothing(world, windowed{here, &w, &signals}, window_programs, 50);
    co_await world.barrier();
  }
  co_await trains(here, nullptr, false);
  co_await trains(here, gpu::float16_hook(), true);
  co_await trains(here, float16_hook(), false);
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
