// SPDX-License-Identifier: Apache-2.0
// The code of README.md as a program: a GPU, training, and a loop that survives the death of a rank.
//   TUTTI_DEVICE=emulated tutti-run -n 4 readme
#include <tutti/gpu.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace {

// clang-format off
tutti::task<> average_on_device(tutti::communicator world, std::span<float> values) {
  tutti::gpu::device device = co_await tutti::gpu::open(world);   // of this rank; every rank calls it
  tutti::gpu::stream stream(device);
  tutti::gpu::device_buffer<float> gradient(device, values.size());
  co_await stream.upload(gradient, values);
  tutti::request average = tutti::start(world.all_reduce(gradient, tutti::avg, stream));
  stream.wait(average);                          // the stream waits; the host does not
  co_await stream.download(values, gradient);    // the coroutine waits; its thread does not
  co_await average;
}
// clang-format on

// y = slope * x, learned from y = 3 * x.
struct line {
  std::vector<float> parameters = std::vector<float>(1), gradient = std::vector<float>(1);

  template <class Ready>
  void backward(std::span<const tutti::sample_index> samples, Ready ready) {
    gradient[0] = 0;
    for (const tutti::sample_index s : samples) {
      const float x = static_cast<float>(s % 10) / 10;
      gradient[0] += 2 * (parameters[0] - 3) * x * x / static_cast<float>(samples.size());
    }
    ready(0);
  }
  void step() { parameters[0] -= 0.2F * gradient[0]; }
};

// clang-format off
tutti::task<> train(tutti::communicator world, line& model, tutti::shared_batches& batches) {
  const std::vector<tutti::gradient_view> gradients{tutti::gradient_view(model.gradient)};
  auto parallel = co_await tutti::data_parallel::create(world, gradients);
  co_await parallel.broadcast(model.parameters);      // all ranks begin with those of rank 0
  for (std::size_t s = 0; s < batches.steps(); ++s) {
    const auto ready = [&](std::size_t i) { parallel.ready(i); };   // average gradient i
    const auto backward = [&] { model.backward(batches.mine(s), ready); };
    co_await tutti::compute(backward);                // on another thread; the loop goes on
    co_await parallel.reduced();
    model.step();
  }
}

tutti::task<> sum_of_survivors(tutti::communicator world, std::span<const float> mine, std::span<float> sum) {
  for (;;) {
    auto result = co_await tutti::as_result(world.all_reduce(mine, sum, tutti::sum));
    if (!result.error) break;
    std::printf("%s\n", result.message.c_str());      // names the rank, the operation and the cause
    world = co_await world.shrink();                  // the ranks that are left
  }
}
// clang-format on

tutti::task<int> readme(tutti::communicator world) {
  std::vector<float> values(1000, static_cast<float>(world.rank()));
  co_await average_on_device(world, values);

  line model;
  tutti::shared_batches batches(2000, 20, world.rank(), world.size(), 1);
  co_await train(world, model, batches);

  const std::vector<float> mine(1000, 1);
  std::vector<float> sum(1000);
  co_await sum_of_survivors(world, mine, sum);

  const bool learned = std::abs(model.parameters[0] - 3) < 0.01F;
  if (world.rank() == 0)
    std::printf("average %g, slope %.2f, sum %g\n", values[0], model.parameters[0], sum[0]);
  co_return learned ? 0 : 1;
}

}  // namespace

int main() { return tutti::run(readme); }
