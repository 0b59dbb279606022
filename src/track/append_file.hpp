// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole pieces.
#pragma once

#include "base/unique_fd.hpp"

#include <filesystem>
#include <string_view>

namespace tutti::track {

class append_file {
 public:
  append_file() = default;
  // Throws tutti::error (errc::system) that names the file.
  explicit append_file(const std::filesystem::path& path);
  // All of it or nothing: what a full disk has taken of it is taken back. 0, or errno.
  int append(std::string_view bytes) noexcept;

 private:
  base::unique_fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace tutti::track
