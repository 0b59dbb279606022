// SPDX-License-Identifier: Apache-2.0
#include "track/append_file.hpp"

#include "base/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <tutti/error.hpp>

namespace tutti::track {

append_file::append_file(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_)
    throw error(errc::system, "tracking cannot write " + path.string() + ": " + base::errno_text(errno));
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  size_ = end > 0 ? static_cast<std::uint64_t>(end) : 0;
}

int append_file::append(std::string_view bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(file_.get(), bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      // Should that fail, too, a reader finds a line that is cut short.
      if (at > 0) {
        [[maybe_unused]] const int undone = ::ftruncate(file_.get(), static_cast<off_t>(size_));
      }
      return code;
    }
    at += static_cast<std::size_t>(n);
  }
  size_ += bytes.size();
  return 0;
}

}  // namespace tutti::track
