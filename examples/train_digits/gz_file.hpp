// SPDX-License-Identifier: Apache-2.0
// Reading a file that may or may not be gzip-compressed, with errors that name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct gzFile_s;

namespace train_digits {

// Front to back, once. Plain files are read as they are; compressed ones are recognised by their content, not
// their name. Errors are std::runtime_error and begin with the path.
class gz_file {
 public:
  explicit gz_file(const std::filesystem::path& path);

  // Fills `into`; returns how many bytes it got, fewer only at the end. A damaged or cut-off gzip stream is
  // an error.
  std::size_t read(std::span<std::uint8_t> into);

  // Throws an error about this file: "path: what".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct closer {
    void operator()(gzFile_s* file) const noexcept;
  };
  std::string path_;
  std::unique_ptr<gzFile_s, closer> file_;
};

}  // namespace train_digits
