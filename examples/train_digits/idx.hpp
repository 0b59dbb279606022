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

// Each takes the file plain or gzip-compressed and checks all of it: kind, dimensions, exact length. What the
// header claims is never allocated before the bytes are there. Errors are std::runtime_error and begin with
// the path.
idx_images read_idx_images(const std::filesystem::path& path);
std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path);

}  // namespace train_digits
