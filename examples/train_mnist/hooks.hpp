// SPDX-License-Identifier: Apache-2.0
// How gradients are averaged: in which buckets, and by which of the library's hooks.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Collective. Registers the gradients of the model, for --hook and --bucket-kib.
tutti::task<> create_parallel(training& t);

}  // namespace train_mnist
