// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the training of all ranks: rank 0 alone reads and writes the file.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Gives all ranks the initial state of rank 0: from options.resume_from, or else from the seed. Completes
// with the first epoch to train, or on all ranks with 0 if rank 0 cannot use the file, and prints why.
tutti::task<int> resume(training& t);

// Rank 0 writes options.save_to, if it is set. Completes with false on all ranks if it cannot be written.
tutti::task<bool> save_epoch(training& t, int epoch);

}  // namespace train_mnist
