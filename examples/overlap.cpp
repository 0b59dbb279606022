// SPDX-License-Identifier: Apache-2.0
// Communicates the gradient of one layer while that of the next is computed.
//   tutti-run -n 4 overlap
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

// A linear layer's input and the error at its output, sample after sample.
struct layer_batch {
  std::size_t samples, inputs, outputs;
  std::vector<float> input, error;
};
layer_batch layer;

// The gradient of the layer's weights: the mean over the samples of error times input, transposed.
void backward(std::span<float> gradient) {
  for (std::size_t o = 0; o < layer.outputs; ++o) {
    const std::span<float> row = gradient.subspan(o * layer.inputs, layer.inputs);
    for (float& weight : row) weight = 0;
    for (std::size_t s = 0; s < layer.samples; ++s) {
      const float error = layer.error[s * layer.outputs + o] / static_cast<float>(layer.samples);
      for (std::size_t i = 0; i < layer.inputs; ++i) row[i] += error * layer.input[s * layer.inputs + i];
    }
  }
}

// clang-format off
tutti::task<> step(tutti::communicator world, std::span<float> a, std::span<float> b) {
  tutti::request reducing = tutti::start(world.all_reduce(a, tutti::avg));   // eager
  co_await tutti::compute([b] { backward(b); });        // on the compute pool; the loop keeps moving bytes
  co_await reducing;
  auto both = co_await tutti::when_all(world.all_reduce(b, tutti::avg), world.barrier());     // structured
}
// clang-format on

// Inputs with an easily predicted average gradient: sample s has input s + 1 everywhere. The error of output
// o on this rank is (rank + 1) * (o + 1).
layer_batch make_layer(int rank) {
  layer_batch made{4, 256, 128, {}, {}};
  for (std::size_t s = 0; s < made.samples; ++s) {
    made.input.insert(made.input.end(), made.inputs, static_cast<float>(s + 1));
    for (std::size_t o = 0; o < made.outputs; ++o)
      made.error.push_back(static_cast<float>(rank + 1) * static_cast<float>(o + 1));
  }
  return made;
}

tutti::task<int> overlap(tutti::communicator world) {
  layer = make_layer(world.rank());
  std::vector<float> a(1 << 20, static_cast<float>(world.rank() + 1)), b(layer.inputs * layer.outputs);
  co_await step(world, a, b);

  const float mean_rank = static_cast<float>(world.size() + 1) / 2;  // of rank + 1
  bool correct = true;
  for (const float x : a) correct = correct && std::abs(x - mean_rank) < 1e-5f * mean_rank;
  for (std::size_t k = 0; k < b.size(); ++k) {
    const float expected = mean_rank * 2.5f * static_cast<float>(k / layer.inputs + 1);  // 2.5: mean input
    correct = correct && std::abs(b[k] - expected) < 1e-5f * expected;
  }
  int all_correct = correct ? 1 : 0;
  co_await world.all_reduce(all_correct, tutti::min);
  if (world.rank() == 0) {
    std::printf("%d ranks, averages %g and %g to %g: %s\n", world.size(), a.front(), b.front(), b.back(),
                all_correct == 1 ? "correct" : "WRONG");
  }
  co_return all_correct == 1 ? 0 : 1;
}

int main() { return tutti::run(overlap); }
