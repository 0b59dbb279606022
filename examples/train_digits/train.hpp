// SPDX-License-Identifier: Apache-2.0
// Synchronous data-parallel training of one network by all ranks.
#pragma once

#include "train_digits/dataset.hpp"

#include <tutti/tutti.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_digits {

struct training_options {
  int epochs = 30;
  std::size_t batch = 64;  // images per step, of all ranks together
  float rate = 0.05f;
  float momentum = 0.9f;
  std::vector<int> hidden{128};  // neurons of each hidden layer
  std::uint64_t seed = 1;
};

// Trains on data.training. Rank 0 prints the loss of each epoch, the accuracy on data.test, the times, and
// whether the parameters of all ranks are still equal bit for bit. Completes with the exit code of the
// program, 1 if they are not. Collective; the arguments must be equal on all ranks.
tutti::task<int> train(tutti::communicator world, training_options options, data_split data);

}  // namespace train_digits
