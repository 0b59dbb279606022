// SPDX-License-Identifier: Apache-2.0
// The tutorial's ring all_reduce on devices, made from send, recv and a kernel; then the library's. Checks
// both.
//   tutti-run -n 4 gpu_ring_all_reduce --device emulated
#include "gpu/device_kernels.hpp"

#include <cstdio>
#include <tutti/gpu/open.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

namespace gpu = tutti::gpu;
using gpu_examples::device_kernels;

// The kernel runs on the stream between the messages; only later operations of the stream wait for it.
tutti::task<> ring(tutti::communicator world, const device_kernels& kernels, gpu::device_buffer<float>& data,
                   gpu::stream s) {
  const int n = world.size(), right = (world.rank() + 1) % n, left = (world.rank() + n - 1) % n;
  gpu::device_buffer<float> out(s.on(), data.size()), in(s.on(), data.size());
  co_await s.copy(out, data);
  for (int step = 0; step + 1 < n; ++step) {
    tutti::request sending = world.isend(out, right, s);
    co_await world.recv(in, left, s);
    gpu_examples::arguments add;
    add.memory[0] = data.data();
    add.memory[1] = in.data();
    add.length[0] = add.length[1] = add.count = data.size();
    kernels.launch(s, device_kernels::kernel::add, add);
    co_await sending;
    std::swap(out, in);
  }
  co_await s.reached();
}

tutti::task<int> compare(tutti::communicator world, std::string kind) {
  const gpu::device dev = co_await gpu_examples::open_device(world, kind);
  const device_kernels kernels(dev);
  const gpu::stream s(dev);
  const std::size_t n = 1 << 18;
  const std::vector<float> mine(n, static_cast<float>(world.rank() + 1));
  const float expected = static_cast<float>(world.size() * (world.size() + 1) / 2);
  gpu::device_buffer<float> data(dev, n);
  std::vector<float> result(n);
  int wrong = 0;

  co_await s.upload(data, mine);
  co_await ring(world, kernels, data, s);
  co_await s.download(result, data);
  for (const float x : result) wrong += x != expected ? 1 : 0;

  co_await s.upload(data, mine);
  co_await world.all_reduce(data, tutti::sum, s);
  co_await s.download(result, data);
  for (const float x : result) wrong += x != expected ? 1 : 0;

  co_await world.all_reduce(wrong, tutti::sum);
  if (world.rank() == 0)
    std::printf("%d ranks on %s, %zu floats: ring and all_reduce give %g, %d elements wrong\n", world.size(),
                dev.name().c_str(), n, static_cast<double>(result[0]), wrong);
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = gpu_examples::option_of(argc, argv, "--device", "emulated");
  return tutti::run([&kind](tutti::communicator world) { return compare(std::move(world), kind); });
}
