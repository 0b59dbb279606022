// SPDX-License-Identifier: Apache-2.0
// The digits that ship with the examples: examples/data/digits.csv.gz.
#pragma once

#include "train_digits/dataset.hpp"

#include <filesystem>

namespace train_digits {

// One image per line: 64 pixels of 0 to 16, then the digit, separated by commas; plain or gzip-compressed.
// Errors are std::runtime_error and name the path, the line and the field.
dataset read_digits_csv(const std::filesystem::path& path);

}  // namespace train_digits
