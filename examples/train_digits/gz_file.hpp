// SPDX-License-Identifier: Apache-2.0
// Reads plain or gzip-compressed files, with errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct gzFile_s;

namespace train_digits {

// Reads sequentially. Recognises compression by content, not by name. Errors are std::runtime_error and begin
// with the path.
class gz_file {
 public:
  explicit gz_file(const std::filesystem::path& path);

  // Fills `into`. Returns the number of bytes, which is smaller only at the end. A damaged or truncated gzip
  // stream is an error.
  std::size_t read(std::span<std::uint8_t> into);

  // Throws an error with the text "path: what".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct closer {
    void operator()(gzFile_s* file) const noexcept;
  };
  std::string path_;
  std::unique_ptr<gzFile_s, closer> file_;
};

}  // namespace train_digits
