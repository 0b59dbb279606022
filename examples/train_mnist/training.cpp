// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/training.hpp"

#include <cstdio>
#include <utility>

namespace train_mnist {

training::training(tutti::communicator all, training_options how, train_digits::data_split from)
    : world(std::move(all)),
      options(std::move(how)),
      data(std::move(from)),
      model(options.seed, options.hidden),
      optimiser(model.parameters().size(), options.rate, options.momentum),
      batches(data.training.size(), options.batch, world.rank(), world.size(), options.seed),
      lines(world.rank() == 0 ? stdout : nullptr, train_digits::output_is_terminal()) {}

void training::read_batch(const train_digits::dataset& from, std::span<const std::uint32_t> images) {
  gather(from, images, batch);
  batch.images.array() = (batch.images.array() - 0.1307F) / 0.3081F;
}

void training::count_step(double seconds) {
  const tutti::averaging_times times = parallel.last();
  ++steps;
  compute_seconds += seconds;
  communication_seconds += times.communication_seconds;
  exposed_seconds += times.exposed_seconds;
}

}  // namespace train_mnist
