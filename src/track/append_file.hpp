// SPDX-License-Identifier: Apache-2.0
// append_file: a file that grows by whole pieces.
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
  // Makes this the only writer of the file until it is closed, also by the death of the process. Returns
  // false if the file has another.
  bool lock() noexcept;
  // Removes what follows the last newline: a line cut short by a crash. Returns 0 or errno.
  int cut_to_whole_lines() noexcept;
  // Appends all or nothing: what a full disk has taken is removed again. Returns 0 or errno.
  int append(std::string_view bytes) noexcept;
  std::uint64_t size() const noexcept;

 private:
  base::unique_fd file_;
};

}  // namespace tutti::track
