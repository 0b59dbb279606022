// SPDX-License-Identifier: Apache-2.0
// The tutorial's training: synchronous SGD of one network by all ranks.
#pragma once

#include "train_digits/dataset.hpp"

#include <tutti/tutti.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train_mnist {

enum class averaging { overlapped, sequential };

struct training_options {
  int epochs = 20;          // more epochs than the tutorial's 10, because there are six times fewer images
  std::size_t batch = 128;  // images per step, of all ranks together
  float rate = 0.01F;
  float momentum = 0.5F;
  std::uint64_t seed = 1234;    // of the initial weights, the batches and the dropout
  std::vector<int> hidden{50};  // units of each hidden dense layer
  averaging when = averaging::overlapped;
  std::string hook = "exact";  // or float16, bfloat16, int8, low-rank
  std::size_t bucket_kib = 0;  // 0: the defaults of data_parallel_options
  std::size_t compare = 0;     // afterwards, times this number of steps of each way of averaging
  std::string save_to;         // a checkpoint after each epoch
  std::string resume_from;
  std::string track_in;  // runs are tracked in this directory
};

// Trains on data.training. Each rank prints its loss after each epoch. Rank 0 also prints the overall loss,
// the accuracy on data.test, and the times. Completes with the exit code of the program: 1 if the replicas
// differ at the end, the training diverged, or a checkpoint could not be read or written. Collective; the
// arguments must be equal on all ranks.
tutti::task<int> train(tutti::communicator world, training_options options, train_digits::data_split data);

}  // namespace train_mnist
