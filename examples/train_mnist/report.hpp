// SPDX-License-Identifier: Apache-2.0
// Output of the ranks: the data, loss and accuracy of each epoch, and times.
#pragma once

#include "train_mnist/training.hpp"

#include <cstddef>

namespace train_mnist {

// Rank 0 prints the data set. Returns false on all ranks if there are fewer images than ranks.
bool report_start(training& t);

// Rank 0 draws the progress of the epoch on a terminal.
void report_step(training& t, int epoch, std::size_t step);

// Collective. `loss`: the sum over this rank's images. Measures the accuracy on the test images, of which
// each rank reads a share. Completes with false on all ranks if the training has diverged.
tutti::task<bool> report_epoch(training& t, int epoch, double loss);

// Prints the accuracy and rank 0's times.
void report_end(training& t);

// Collective. Whether the parameters of all ranks are equal bit for bit.
tutti::task<bool> report_replicas(training& t);

}  // namespace train_mnist
