// SPDX-License-Identifier: Apache-2.0
// Files of numpy.savez and savez_compressed (Keras' format of MNIST): a zip archive with one array per entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train_digits {

// Unsigned bytes, in C order.
struct npz_array {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

// Errors are std::runtime_error and begin with the path: a damaged or truncated archive, an array of another
// type.
class npz_file {
 public:
  explicit npz_file(const std::filesystem::path& path);

  // Reads the array of this name. Checks the number of dimensions, the length and the checksum.
  npz_array read(const std::string& name, std::size_t dimensions) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  // A little-endian number of `bytes` bytes.
  std::uint64_t number(std::uint64_t at, unsigned bytes) const;
  std::vector<std::uint8_t> unpacked(std::uint64_t entry) const;

  std::string path_, content_;
};

}  // namespace train_digits
