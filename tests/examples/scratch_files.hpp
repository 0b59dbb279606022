// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of readers: compressed files, and the text of an error.
#pragma once

#include "support/scratch_directory.hpp"

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <zlib.h>

namespace tutti::test {

// Returns the path of the new file.
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

// The text of the exception that f throws; empty if it throws none.
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
