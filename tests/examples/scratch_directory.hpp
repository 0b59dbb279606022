// SPDX-License-Identifier: Apache-2.0
// Files for the tests of readers: a directory that goes when the test ends.
#pragma once

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <zlib.h>

namespace tutti::test {

class scratch_directory {
 public:
  scratch_directory() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = name;
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  // Each returns the path of what it wrote.
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  std::filesystem::path write_gz(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = path_ / name;
    gzFile file = gzopen(path.c_str(), "wb");
    if (file == nullptr || gzwrite(file, content.data(), static_cast<unsigned>(content.size())) !=
                               static_cast<int>(content.size())) {
      throw std::runtime_error("cannot write " + path.string());
    }
    gzclose(file);
    return path;
  }

  std::string read(const std::filesystem::path& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

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
