// SPDX-License-Identifier: Apache-2.0
// Files of numpy.savez and savez_compressed, as Keras keeps MNIST: a zip archive with an array in each entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train_digits {

// Of unsigned bytes, in the order of C.
struct npz_array {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

// Errors are std::runtime_error and begin with the path: a damaged or cut-off archive, an array of another
// type.
class npz_file {
 public:
  explicit npz_file(const std::filesystem::path& path);

  // The array of this name, whose number of dimensions is as given. Checks its length and its checksum.
  npz_array read(const std::string& name, std::size_t dimensions) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  // A little-endian number of so many bytes.
  std::uint64_t number(std::uint64_t at, unsigned bytes) const;
  std::vector<std::uint8_t> unpacked(std::uint64_t entry) const;

  std::string path_, content_;
};

}  // namespace train_digits
