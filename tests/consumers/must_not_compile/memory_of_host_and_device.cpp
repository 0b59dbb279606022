// SPDX-License-Identifier: Apache-2.0
// EXPECT: both buffers are of the host, or both of devices
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  const tutti::gpu::device device = co_await tutti::gpu::open(world);
  const tutti::gpu::stream stream(device);
  tutti::gpu::device_buffer<float> x(device, 4);
  std::vector<float> y(4);
  co_await world.all_reduce(x, y, tutti::sum, stream);
}
