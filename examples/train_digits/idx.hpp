// SPDX-License-Identifier: Apache-2.0
// The IDX format of the MNIST files: a big-endian header, then unsigned bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace train_digits {

struct idx_images {
  std::size_t count = 0;
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;  // count * rows * columns, image after image, row by row
};

// Both accept plain and gzip-compressed files, and check kind, dimensions and exact length. They allocate no
// memory before the data exist, whatever the header claims. Errors are std::runtime_error and begin with the
// path.
idx_images read_idx_images(const std::filesystem::path& path);
std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path);

}  // namespace train_digits
