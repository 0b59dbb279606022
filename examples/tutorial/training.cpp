// SPDX-License-Identifier: Apache-2.0
// Distributed synchronous SGD: each rank learns from its own part of the images, and all average their
// gradients before every step.
//   tutti-run -n 4 tutorial_training
//   tutti-run -n 4 tutorial_training path/to/mnist
#include "train_digits/dataset.hpp"
#include "train_digits/sgd.hpp"
#include "train_mnist/network.hpp"

#include <tutti/train/partition.hpp>
#include <tutti/train/replicas.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

using network = train_mnist::network<float>;

constexpr int epochs = 10;
constexpr std::size_t batch_of_all = 16;  // the tutorial's 128 is for forty times as many images

// A directory of MNIST files. Empty: the digits of the examples, scaled to the size of MNIST's.
train_digits::dataset images_of(const std::string& directory) {
  if (!directory.empty()) {
    train_digits::dataset images = train_digits::load_mnist(directory).training;
    if (images.rows != train_mnist::image_side || images.columns != train_mnist::image_side)
      throw std::runtime_error(directory + ": the images are not of 28 x 28 pixels");
    return images;
  }
  const train_digits::dataset digits =
      train_digits::load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz").training;
  return train_digits::scaled(digits, train_mnist::image_side);
}

// Replaces each gradient by the average over all ranks, parameter by parameter.
tutti::task<> average_gradients(tutti::communicator world, network& model) {
  for (const train_mnist::tensor& parameter : model.layout())
    co_await world.all_reduce(model.gradient().subspan(parameter.begin, parameter.size), tutti::avg);
}

tutti::task<int> run(tutti::communicator world, std::string directory) {
  const train_digits::dataset images = images_of(directory);
  network model(1234);
  train_digits::sgd optimiser(model.parameters().size(), 0.01F, 0.5F);
  const tutti::data_partitioner partition(images.size(), world.size(), 1234);
  const std::span<const tutti::sample_index> mine = partition.use(world.rank());
  const std::size_t batch = std::max<std::size_t>(1, batch_of_all / static_cast<std::size_t>(world.size()));
  // Parts may differ by one image. All ranks make as many steps as the one with the fewest batches.
  std::size_t steps = tutti::batches_in(mine.size(), batch);
  co_await world.all_reduce(steps, tutti::min);
  if (steps == 0) {
    if (world.rank() == 0)
      std::fprintf(stderr, "%zu images are too few for %d ranks: use fewer ranks\n", images.size(),
                   world.size());
    co_return 1;
  }

  train_digits::batch data;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double epoch_loss = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      const auto those = tutti::batch_of(mine, batch, step);
      const auto backward = [&] {
        train_digits::gather(images, those, data);
        data.images.array() = (data.images.array() - 0.1307F) / 0.3081F;
        const float mean = 1 / static_cast<float>(those.size());
        const train_mnist::dropout left_out{1234, static_cast<std::uint64_t>(epoch), those};
        epoch_loss += model.backward(data.images, data.labels, mean, left_out, [](std::size_t) {}) * mean;
      };
      co_await tutti::compute(backward);
      co_await average_gradients(world, model);
      optimiser.step(model.parameters(), model.gradient());
    }
    std::printf("Rank %d, epoch %d: %.4f\n", world.rank(), epoch, epoch_loss / static_cast<double>(steps));
  }
  const tutti::replica_check check = co_await tutti::compare_replicas(world, model.parameters());
  if (world.rank() == 0) std::printf("replicas identical: %s\n", check.agree() ? "yes" : "NO");
  co_return check.agree() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "";
  return tutti::run([&](tutti::communicator world) { return run(std::move(world), directory); });
}
