// SPDX-License-Identifier: Apache-2.0
// Backends: one word says what moves the data. Host memory goes by tutti's own transports or by MPI, memory
// of devices by NCCL, oneCCL (XCCL), a kernel on the device that all ranks share, or through host memory.
//   tutti-run -n 4 tutorial_backends native
//   mpirun -n 4 tutorial_backends mpi
//   tutti-run -n 4 tutorial_backends nccl         and likewise oneccl, xccl, one_device, staged, auto
//   TUTTI_DEVICE=emulated tutti-run -n 4 tutorial_backends staged       without a GPU
#include <cstdio>
#include <map>
#include <string>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

namespace gpu = tutti::gpu;

const std::map<std::string, gpu::backend> of_devices{
    {"auto", gpu::backend::automatic},        {"nccl", gpu::backend::nccl},
    {"oneccl", gpu::backend::oneccl},         {"xccl", gpu::backend::oneccl},
    {"one_device", gpu::backend::one_device}, {"staged", gpu::backend::staged}};

tutti::task<> on_host(tutti::communicator world) {
  float x = static_cast<float>(world.rank() + 1);
  co_await world.all_reduce(x, tutti::sum);
  std::printf("Rank %d has %g\n", world.rank(), static_cast<double>(x));
}

// Prints whether the backend supports an operation, or why it does not.
void show(gpu::backend wanted, const char* verb, const gpu::served_by& served) {
  if (served.with != gpu::backend::automatic)
    std::printf("%s: by %s\n", verb, gpu::name_of(served.with));
  else
    for (const gpu::served_by::refusal& refusal : served.not_by)
      if (refusal.by == wanted) std::printf("%s: no: %s\n", verb, refusal.why.c_str());
}

tutti::task<int> on_device(tutti::communicator world, gpu::backend by) {
  gpu::open_options how;
  how.backend = by;
  gpu::device device = co_await gpu::open(world, how);
  gpu::stream stream(device);
  const auto size = static_cast<std::size_t>(world.size());
  gpu::device_buffer<float> x(device, 1), all(device, size);
  std::vector<float> host(1, static_cast<float>(world.rank() + 1));
  co_await stream.upload(x, host);
  const auto reduced = co_await tutti::as_result(world.all_reduce(x, tutti::sum, stream));
  co_await stream.download(host, x);
  if (!reduced.error)
    std::printf("Rank %d has %g on %s\n", world.rank(), static_cast<double>(host[0]), device.name().c_str());
  if (world.rank() != 0) co_return 0;
  show(by, "send", gpu::backend_for(world.send(x, 0, stream)));
  show(by, "recv", gpu::backend_for(world.recv(x, 0, stream)));
  show(by, "broadcast", gpu::backend_for(world.broadcast(x, 0, stream)));
  show(by, "all_reduce", gpu::backend_for(world.all_reduce(x, tutti::sum, stream)));
  show(by, "reduce", gpu::backend_for(world.reduce(x, tutti::sum, 0, stream)));
  show(by, "all_gather", gpu::backend_for(world.all_gather(x, all, stream)));
  show(by, "gather", gpu::backend_for(world.gather(x, all, 0, stream)));
  show(by, "scatter", gpu::backend_for(world.scatter(all, x, 0, stream)));
  show(by, "reduce_scatter", gpu::backend_for(world.reduce_scatter(all, x, tutti::sum, stream)));
  show(by, "all_to_all", gpu::backend_for(world.all_to_all(all, all, stream)));
  show(by, "scan", gpu::backend_for(world.scan(x, x, tutti::sum, stream)));
  show(by, "barrier", gpu::backend_for(world.barrier(stream)));
  if (reduced.error) std::fprintf(stderr, "%s\n", reduced.message.c_str());
  co_return reduced.error ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "native";
  if (const auto found = of_devices.find(word); found != of_devices.end())
    return tutti::run([by = found->second](tutti::communicator world) { return on_device(world, by); });
  tutti::init_options options;
  options.backend = word;  // "native" or "mpi"
  return tutti::run(options, on_host);
}
