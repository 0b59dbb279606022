// SPDX-License-Identifier: Apache-2.0
// run_files: reads the files of a run, which may come from anybody: only regular files that are in the run, also
// behind symbolic links, and no more of them than asked for.
#pragma once

#include "base/files.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti::report {

class run_files {
 public:
  explicit run_files(const std::filesystem::path& run) {
    std::error_code ignored;
    run_ = std::filesystem::canonical(run, ignored);
  }

  // Nothing if there is no such file, or if it is larger.
  std::optional<std::string> contents_of(const std::filesystem::path& path, std::size_t most) const {
    const file f = opened(path);
    if (!f.fd || f.size > most) return std::nullopt;
    return read(f, 0, most);
  }
  // Its last bytes; empty if there is no such file.
  std::string end_of(const std::filesystem::path& path, std::size_t most) const {
    const file f = opened(path);
    return f.fd ? read(f, f.size - std::min(f.size, most), most) : std::string();
  }
  // Calls f with each line, without its end. Longer ones are cut.
  template <class F>
  void for_each_line(const std::filesystem::path& path, F f) const {
    constexpr std::size_t longest = std::size_t{64} << 20;
    const file from = opened(path);
    std::string line;
    const auto add = [&](std::string_view part) { line += part.substr(0, longest - line.size()); };
    std::size_t at = 0;
    for (std::string block; !(block = read(from, at, std::size_t{1} << 16)).empty(); at += block.size()) {
      std::string_view rest = block;
      for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
        add(rest.substr(0, end));
        f(line);
        line.clear();
      }
      add(rest);
    }
    if (!line.empty()) f(line);
  }

 private:
  struct file {
    base::unique_fd fd;
    std::size_t size = 0;
  };
  // Without a descriptor if it is none of the run's.
  file opened(const std::filesystem::path& path) const {
    std::error_code failed;
    const std::filesystem::path there = std::filesystem::canonical(path, failed);
    if (failed || run_.empty() || std::ranges::mismatch(run_, there).in1 != run_.end()) return {};
    struct stat status{};
    base::unique_fd fd = base::open_regular(there, O_NOFOLLOW);
    if (!fd || ::fstat(fd.get(), &status) != 0) return {};
    return {std::move(fd), static_cast<std::size_t>(status.st_size)};
  }
  static std::string read(const file& from, std::size_t at, std::size_t most) {
    std::string bytes(std::min(most, from.size - std::min(at, from.size)), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = TEMP_FAILURE_RETRY(
          ::pread(from.fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + done)));
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    bytes.resize(done);
    return bytes;
  }

  std::filesystem::path run_;  // canonical; empty: there is none
};

}  // namespace tutti::report
