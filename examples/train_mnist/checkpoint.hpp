// SPDX-License-Identifier: Apache-2.0
// The state of a training on disk, sufficient to continue it identically on any number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train_mnist {

struct checkpoint {
  std::uint64_t epoch = 0;  // completed epochs
  std::uint64_t seed = 0;   // determines the batches and the dropout of later epochs
  std::vector<float> parameters, velocity;
};

// Replaces the file atomically. Throws std::runtime_error that names it.
void save(const checkpoint& what, const std::filesystem::path& path);
// Throws std::runtime_error if the file is missing, damaged, or not a checkpoint of this network.
checkpoint load(const std::filesystem::path& path, std::size_t parameters);

}  // namespace train_mnist
