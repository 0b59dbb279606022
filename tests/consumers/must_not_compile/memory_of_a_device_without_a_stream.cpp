// SPDX-License-Identifier: Apache-2.0
// An operation on device memory runs after earlier work of a stream. Without one it might read too early.
// EXPECT: (use of|call to).*deleted.*on_stream|on_stream'. invokes a deleted function
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  const tutti::gpu::device device = co_await tutti::gpu::open(world);
  tutti::gpu::device_buffer<float> x(device, 4);
  co_await world.all_reduce(x, tutti::sum);
}
