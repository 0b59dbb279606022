// SPDX-License-Identifier: Apache-2.0
// The conformance suite of collectives with its buffers in device memory, on every backend.
#include "coll/conformance/movement.hpp"
#include "coll/conformance/reductions.hpp"
#include "gpu/backends.hpp"
#include "gpu/device_memory.hpp"
#include "support/second_loop.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <utility>
#include <vector>

namespace {

using namespace tutti::test;
using tutti::communicator;
using tutti::task;
namespace gpu = tutti::gpu;

// One configuration of the suite.
struct stage {
  std::string name;
  setting where;
  gpu::backend by;  // must serve at least some calls
  gpu::open_options how;
  int third;  // which third of the reductions; -1: all
  std::function<bench()> make;
};

bench on_emulated_devices() {
  auto on = std::make_shared<tutti::emulated::emulated_device>();
  bench b;
  b.open = [on](const communicator& of) { return tutti::emulated::open(of, on); };
  return b;
}

std::vector<stage> stages() {
  std::vector<stage> all;
  const auto add = [&all](const std::string& name, const std::string& transport, int ranks, gpu::backend by,
                          bool forced, int third, std::function<bench()> make) {
    gpu::open_options how = with(forced ? by : gpu::backend::automatic);
    how.chunk_bytes = 16 * KiB;
    all.push_back(
        {name + ", " + gpu::name_of(by), setting{transport, ranks, ""}, by, how, third, std::move(make)});
  };
  int devices = 0;
  for (const backend& b : backends()) {
    // Other tests cover the other ways of waiting and the other adversaries.
    const bool plain = b.name.find_first_of(" ,") == std::string::npos || b.name == "stand-in for CUDA" ||
                       b.name == "Level Zero" || b.name.starts_with("emulated, adversary");
    if (!plain) continue;
    const int third = devices++ % 3;
    if (third != 0 && is_second_loop()) continue;
    add(b.name, "shm", 3, gpu::backend::one_device, false, third, b.make);
    add(b.name, "shm", 2, gpu::backend::staged, true, third, b.make);
  }
  add("emulated, tcp", "tcp", 3, gpu::backend::staged, true, 0, on_emulated_devices);
  add("stand-in for CUDA", "shm", 3, gpu::backend::nccl, false, -1, [] {
    const fake_cuda fake;
    fake.reset(3, 0, 0, 1);
    bench b;
    b.scene = {std::make_shared<variable>("TUTTI_CUDA_LIBRARY", stand_in("cuda")),
               std::make_shared<variable>("TUTTI_NCCL_LIBRARY", stand_in("nccl"))};
    b.open = [](const communicator& of) { return tutti::cuda::open(of, of.rank()); };
    b.misuse = [fake, before = fake.misuses()] {
      return fake.misuses() == before ? std::string() : std::string(fake.last_misuse());
    };
    return b;
  });
  add("emulated", "shm", 3, gpu::backend::oneccl, true, -1, [] {
    bench b = on_emulated_devices();
    b.scene = {std::make_shared<variable>("TUTTI_ONECCL_LIBRARY", stand_in("oneccl"))};
    return b;
  });
  return all;
}

using program = std::function<task<>(communicator, const setting*, const device_memory*)>;

// `chosen`: the stage's backend must serve some calls.
task<> perform_on(communicator world, const stage* s, const bench* on, const program* p, bool chosen) {
  const gpu::device device = on->open(world);
  const place at = co_await open_on(world, device, s->how);
  const device_memory memory(at.device, s->third);
  co_await (*p)(world, &s->where, &memory);
  if (s->by == gpu::backend::one_device) chosen = chosen && device.can().kernels;
  TUTTI_EXPECT(!chosen || memory.served_by(s->by) > 0);
  co_await world.barrier();
}

void run_on(const stage& s, const program& p, bool chosen) {
  CAPTURE(s.name);
  const bench on = s.make();
  CHECK_NOTHROW(run_in(s.where, [&](communicator world, const setting*) {
    return perform_on(std::move(world), &s, &on, &p, chosen);
  }));
  if (on.misuse) CHECK(on.misuse() == "");
}
void run_on_all(const program& p, bool chosen = true) {
  for (const stage& s : stages()) run_on(s, p, chosen);
}

}  // namespace

TEST_CASE("on devices: blocks of every element type") { run_on_all(movement::every_type<device_memory>); }
TEST_CASE("on devices: blocks of every size around a threshold, from every root") {
  run_on_all(movement::every_size_and_root<device_memory>);
}
TEST_CASE("on devices: uneven blocks of every shape and size") {
  run_on_all(movement::every_shape<device_memory>, false);  // these are staged
}
TEST_CASE("on devices: every reduction of every element type") {
  run_on_all(reductions::every_type<device_memory>);
}
TEST_CASE("on devices: reductions of every size around a threshold") {
  run_on_all(reductions::every_size<device_memory>);
}
TEST_CASE("on devices: nobody leaves a barrier before all have come") {
  for (const stage& s : stages()) {
    if (s.by == gpu::backend::oneccl) continue;  // it has no barrier, and is forced here
    std::atomic<int> arrived = 0;
    const auto pass = [&arrived](communicator world, const setting* where, const device_memory* memory) {
      return movement::nobody_leaves_early(std::move(world), where, memory, &arrived);
    };
    run_on(s, pass, false);
  }
}
