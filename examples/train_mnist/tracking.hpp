// SPDX-License-Identifier: Apache-2.0
// What --track records of a training: hyperparameters, and loss and times of each step of each rank.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Collective. Does nothing without options.track_in.
tutti::task<> open_log(training& t);
// Collective. Does nothing without a log.
tutti::task<> log_step(training& t, int epoch, std::size_t step, step_result done);

}  // namespace train_mnist
