// SPDX-License-Identifier: Apache-2.0
// A training on disk: what is needed to go on as if it had never stopped, on any number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train_mnist {

struct checkpoint {
  std::uint64_t epoch = 0;  // epochs that are done
  std::uint64_t seed = 0;   // decides the batches and the dropout of those to come
  std::vector<float> parameters, velocity;
};

// The file is the old or the new one at every moment, whole. Throws std::runtime_error that names it.
void save(const checkpoint& what, const std::filesystem::path& path);
// Throws std::runtime_error: no such file, no checkpoint of this network, or damaged.
checkpoint load(const std::filesystem::path& path, std::size_t parameters);

}  // namespace train_mnist
