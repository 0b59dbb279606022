// SPDX-License-Identifier: Apache-2.0
// Adam whose state is divided among the ranks (ZeRO): each steps its share of the parameters, and gathers the others.
//   tutti-run -n 4 only_sharded
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <cmath>
#include <cstdio>

using values = std::span<float>;
constexpr int layers = 8, width = 5000, batch = 12;  // x[l + 1] = tanh(weight[l] x[l]), element by element

tutti::task<> train(tutti::communicator world) {
  const int samples = batch / world.size(), n = samples * width;  // of this rank
  std::vector<float> weights(layers * width, 1.2F), gradients(weights.size()), error(n);
  std::vector<std::vector<float>> x(layers + 1, error);
  for (int j = 0; j < n; ++j) x[0][j] = 0.1F * static_cast<float>(samples * world.rank() + j / width + 1);
  std::vector<tutti::sharded_piece<values>> layer;
  for (int at = 0; at < layers * width; at += width)
    layer.push_back({values(weights).subspan(at, width), values(gradients).subspan(at, width)});
  auto adam = co_await tutti::sharded<values>::create(world, layer);
  std::vector<float> mean(adam.own_elements()), square(mean.size());
  double loss = 0;
  for (int step = 0; step < 10; ++step) {
    for (int l = 0; l < layers; ++l) {
      co_await adam.gathered(l);
      const auto forward = [&] {
        for (int j = 0; j < n; ++j) x[l + 1][j] = std::tanh(layer[l].parameters[j % width] * x[l][j]);
      };
      co_await tutti::compute(forward);
    }
    for (int j = 0; j < n; ++j) loss += std::pow(error[j] = x[layers][j] - 0.5F, 2);
    gradients.assign(gradients.size(), 0);
    for (int l = layers; l-- > 0;) {
      const auto backward = [&] {
        for (int j = 0; j < n; ++j) {
          error[j] *= 1 - x[l + 1][j] * x[l + 1][j];
          layer[l].gradient[j % width] += error[j] * x[l][j] / static_cast<float>(samples);
          error[j] *= layer[l].parameters[j % width];
        }
      };
      co_await tutti::compute(backward);
      adam.ready(l);
    }
    for (int l = layers; l-- > 0;) {
      const tutti::shard<values> own = co_await adam.reduced(l);
      for (std::size_t k = 0; k < own.parameters.size(); ++k) {
        float &m = mean[own.offset + k], &v = square[own.offset + k], g = own.gradient[k];
        m += 0.1F * (g - m), v += 0.01F * (g * g - v);
        own.parameters[k] -= 0.01F * m / (std::sqrt(v) + 1e-8F);
      }
    }
    adam.gather();
  }
  co_await adam.gathered();
  co_await world.all_reduce(loss, tutti::sum);
  if (world.rank() == 0) std::printf("loss %.6g; bytes of state on each rank: %zu\n", loss, 8 * mean.size());
}

int main() { return tutti::run(train); }
