// SPDX-License-Identifier: Apache-2.0
// How gradients are averaged: the buckets, and the library's hook.
#pragma once

#include "train_mnist/training.hpp"

namespace train_mnist {

// Collective. Registers the gradients of the model with --hook and --bucket-kib.
tutti::task<> create_parallel(training& t);

}  // namespace train_mnist
