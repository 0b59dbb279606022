// SPDX-License-Identifier: Apache-2.0
// What the ranks print: the data, the loss and the accuracy of each epoch, and where the time went.
#pragma once

#include "train_mnist/training.hpp"

#include <cstddef>

namespace train_mnist {

// Rank 0 prints what is trained on. False, on all ranks: there are fewer images than ranks.
bool report_start(training& t);

// Rank 0 draws how far the epoch is, where a person watches.
void report_step(training& t, int epoch, std::size_t step);

// Collective. `loss`: the sum over this rank's images. Measures the accuracy on the test images, of which each
// rank reads a share. False, on all ranks: the training has diverged.
tutti::task<bool> report_epoch(training& t, int epoch, double loss);

// The accuracy, and where the time of rank 0 went.
void report_end(training& t);

// Collective. Whether the parameters of all ranks are the same, bit by bit.
tutti::task<bool> report_replicas(training& t);

}  // namespace train_mnist
