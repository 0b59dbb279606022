// SPDX-License-Identifier: Apache-2.0
// --compare: measures the gain from averaging during the backward pass.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Times options.compare steps of each way of averaging. Rank 0 prints the medians.
tutti::task<> compare_ways(training& t);

}  // namespace train_mnist
