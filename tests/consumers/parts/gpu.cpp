// SPDX-License-Identifier: Apache-2.0
// A user's program on tutti::gpu.
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

tutti::task<> open_device(tutti::communicator world) {
  const tutti::gpu::device device = tutti::emulated::open(world);
  std::printf("gpu: %s\n", device ? "yes" : "no");
  co_await world.barrier();
}

int main() { return tutti::run(open_device); }
