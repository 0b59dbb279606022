// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole pieces.
#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tutti::track {

class append_file {
 public:
  append_file() = default;
  // Throws tutti::error (errc::system) that names the file.
  explicit append_file(const std::filesystem::path& path);
  // Makes this the only writer of the file until it is closed, also by the death of the process. False: the
  // file has another.
  bool lock() noexcept;
  // Removes what follows the last newline: a line that a crash cut short. 0, or errno.
  int cut_to_whole_lines() noexcept;
  // All of it or nothing: what a full disk has taken of it is taken back. 0, or errno.
  int append(std::string_view bytes) noexcept;
  std::uint64_t size() const noexcept { return size_; }

 private:
  base::unique_fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace tutti::track
