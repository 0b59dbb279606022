// SPDX-License-Identifier: Apache-2.0
// Trains one model on ranks with unequal parts of the data. Gradients are averaged while others are computed.
// A rank without further batches takes part until the last rank has finished.
//   tutti-run -n 4 data_parallel
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr std::size_t samples = 2000, batch = 16, inputs = 8;

// The function to be learned: y = x * wanted + 5.
float input_of(tutti::sample_index sample, std::size_t i) {
  return std::sin(static_cast<float>((sample + 1) * (i + 1)));
}
float wanted(std::size_t i) { return static_cast<float>(i) - 3; }

struct model {
  std::vector<float> weights = std::vector<float>(inputs), bias = std::vector<float>(1);
  std::vector<float> weight_gradient = std::vector<float>(inputs), bias_gradient = std::vector<float>(1);

  // The mean squared error over these samples. Calls `ready(i)` as soon as gradient i is complete.
  template <class Ready>
  void backward(std::span<const tutti::sample_index> those, Ready ready) {
    std::vector<float> wrong;
    for (const tutti::sample_index s : those) {
      float y = bias[0] - 5;
      for (std::size_t i = 0; i < inputs; ++i) y += (weights[i] - wanted(i)) * input_of(s, i);
      wrong.push_back(2 * y / static_cast<float>(those.size()));
    }
    bias_gradient[0] = 0;
    for (const float w : wrong) bias_gradient[0] += w;
    ready(1);
    for (std::size_t i = 0; i < inputs; ++i) {
      weight_gradient[i] = 0;
      for (std::size_t k = 0; k < those.size(); ++k) weight_gradient[i] += wrong[k] * input_of(those[k], i);
    }
    ready(0);
  }
  void step(float rate) {
    for (std::size_t i = 0; i < inputs; ++i) weights[i] -= rate * weight_gradient[i];
    bias[0] -= rate * bias_gradient[0];
  }
};

tutti::task<int> train(tutti::communicator world) {
  // Rank r gets r + 1 shares of the samples.
  std::vector<double> fractions;
  for (int r = 0; r < world.size(); ++r)
    fractions.push_back(2.0 * (r + 1) / (world.size() * (world.size() + 1.0)));
  const tutti::data_partitioner parts(samples, fractions);
  const std::span<const tutti::sample_index> mine = parts.use(world.rank());

  model m;
  const std::vector<tutti::gradient_view> gradients{tutti::gradient_view(m.weight_gradient),
                                                    tutti::gradient_view(m.bias_gradient)};
  tutti::data_parallel_options options;
  options.uneven = true;
  tutti::data_parallel parallel = co_await tutti::data_parallel::create(world, gradients, options);
  co_await parallel.broadcast(m.weights);
  co_await parallel.broadcast(m.bias);

  for (int epoch = 0; epoch < 10; ++epoch) {
    for (std::size_t s = 0; s < tutti::batches_in(mine.size(), batch); ++s) {
      const std::span<const tutti::sample_index> those = tutti::batch_of(mine, batch, s);
      parallel.begin_step(static_cast<double>(those.size()));  // a sample counts equally on every rank
      const auto backward = [&] { m.backward(those, [&](std::size_t i) { parallel.ready(i); }); };
      co_await tutti::compute(backward);
      co_await parallel.reduced();
      m.step(0.1F);
    }
    for (;;) {
      const bool others_have_batches = co_await parallel.join_step();
      if (!others_have_batches) break;
      m.step(0.1F);
    }
  }

  float worst = std::abs(m.bias[0] - 5);
  for (std::size_t i = 0; i < inputs; ++i) worst = std::max(worst, std::abs(m.weights[i] - wanted(i)));
  const std::vector<std::span<const float>> pieces{m.weights, m.bias};
  const tutti::replica_check check = co_await tutti::compare_replicas(world, pieces);
  const bool good = worst < 0.01F && check.agree();
  if (world.rank() == 0)
    std::printf("%d ranks with unequal parts: learned: %s, replicas identical: %s\n", world.size(),
                worst < 0.01F ? "yes" : "NO", check.agree() ? "yes" : "NO");
  co_return good ? 0 : 1;
}

}  // namespace

int main() { return tutti::run(train); }
