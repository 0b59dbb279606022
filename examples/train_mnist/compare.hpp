// SPDX-License-Identifier: Apache-2.0
// --compare: what averaging behind the backward pass gains.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Times options.compare steps of each way of averaging; rank 0 prints the medians.
tutti::task<> compare_ways(training& t);

}  // namespace train_mnist
