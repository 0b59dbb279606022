// SPDX-License-Identifier: Apache-2.0
// What the tests of readers need besides a scratch directory: packed files, and the text of an error.
#pragma once

#include "support/scratch_directory.hpp"

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <zlib.h>

namespace tutti::test {

// Returns the path of what it wrote.
inline std::filesystem::path write_gz(const scratch_directory& into, const std::string& name,
                                      const std::string& content) {
  const std::filesystem::path path = into.path() / name;
  gzFile file = gzopen(path.c_str(), "wb");
  if (file == nullptr || gzwrite(file, content.data(), static_cast<unsigned>(content.size())) !=
                             static_cast<int>(content.size())) {
    throw std::runtime_error("cannot write " + path.string());
  }
  gzclose(file);
  return path;
}

// The text of the exception that f throws; empty when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace tutti::test
