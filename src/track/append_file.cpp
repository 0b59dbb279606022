// SPDX-License-Identifier: Apache-2.0
#include "track/append_file.hpp"

#include "base/files.hpp"
#include "base/text.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tutti/error.hpp>

namespace tutti::track {

append_file::append_file(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_)
    throw error(errc::system, "tracking cannot write " + path.string() + ": " + base::errno_text(errno));
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  size_ = end > 0 ? static_cast<std::uint64_t>(end) : 0;
}

bool append_file::lock() noexcept {
  // A file system without locks cannot report another writer.
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  // The last writer may have written since the file was opened.
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  size_ = end > 0 ? static_cast<std::uint64_t>(end) : 0;
  return true;
}

int append_file::cut_to_whole_lines() noexcept {
  char block[4096];
  std::uint64_t end = size_;
  while (end > 0) {
    const std::uint64_t begin = end - std::min<std::uint64_t>(end, sizeof block);
    const ssize_t n = ::pread(file_.get(), block, end - begin, static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    const std::size_t newline = std::string_view(block, static_cast<std::size_t>(n)).rfind('\n');
    end = newline == std::string_view::npos ? begin : begin + newline + 1;
    if (newline != std::string_view::npos) break;
  }
  if (end == size_) return 0;
  if (::ftruncate(file_.get(), static_cast<off_t>(end)) != 0) return errno;
  size_ = end;
  return 0;
}

int append_file::append(std::string_view bytes) noexcept {
  const std::size_t written = base::write_all(file_.get(), bytes);
  if (written < bytes.size()) {
    const int code = errno;
    // If that fails, too, a reader finds a line that is cut short.
    if (written > 0) {
      [[maybe_unused]] const int undone = ::ftruncate(file_.get(), static_cast<off_t>(size_));
    }
    return code;
  }
  size_ += bytes.size();
  return 0;
}

}  // namespace tutti::track
