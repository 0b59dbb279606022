// SPDX-License-Identifier: Apache-2.0
// The training state of a rank, and one step.
#pragma once

#include "train_digits/dataset.hpp"
#include "train_digits/progress.hpp"
#include "train_digits/sgd.hpp"
#include "train_mnist/network.hpp"
#include "train_mnist/train.hpp"

#include <tutti/track.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace train_mnist {

using train_digits::text;
using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

struct training {
  training(tutti::communicator all, training_options how, train_digits::data_split from);

  // Copies these images into `batch`, normalised by MNIST's mean and deviation.
  void read_batch(const train_digits::dataset& from, std::span<const std::uint32_t> images);
  // Adds a step to the times below; `seconds`: time of its computation.
  void count_step(double seconds);

  tutti::communicator world;
  training_options options;
  train_digits::data_split data;
  network<float> model;
  train_digits::sgd optimiser;
  tutti::shared_batches batches;
  train_digits::batch batch;
  tutti::data_parallel parallel;
  tutti::track::log log;         // empty without options.track_in
  train_digits::progress lines;  // of rank 0
  double accuracy_percent = 0;   // on the test images, after the last epoch
  // Totals of all steps so far.
  std::size_t steps = 0;
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;
};

struct step_result {
  double loss = 0;             // sum over this rank's images
  double compute_seconds = 0;  // of the backward pass
};

// One step on all ranks: backward pass, averaging, optimiser.
tutti::task<step_result> train_step(training& t, int epoch, std::size_t step, averaging when);

}  // namespace train_mnist
