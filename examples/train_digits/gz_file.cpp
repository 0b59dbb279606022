// SPDX-License-Identifier: Apache-2.0
// Implemented with zlib.
#include "train_digits/gz_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace train_digits {

void gz_file::closer::operator()(gzFile_s* file) const noexcept { gzclose(file); }

gz_file::gz_file(const std::filesystem::path& path) : path_(path.string()) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("is a directory, not a file");
  errno = 0;
  file_.reset(gzopen(path_.c_str(), "rb"));
  if (!file_) fail(std::string("cannot be opened: ") + (errno != 0 ? std::strerror(errno) : "out of memory"));
}

std::size_t gz_file::read(std::span<std::uint8_t> into) {
  constexpr std::size_t largest_call = 1u << 30;  // gzread counts in int
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t wanted = std::min(into.size() - done, largest_call);
    const int got = gzread(file_.get(), into.data() + done, static_cast<unsigned>(wanted));
    // gzread returns the data before a truncation; only gzerror reports it.
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO) fail(std::string("cannot be read: ") + std::strerror(errno));
    if (code == Z_BUF_ERROR) fail("ends in the middle of its gzip stream: the copy is incomplete");
    if (got < 0 || code < 0) fail(std::string("is not an intact gzip file: ") + text);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void gz_file::fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

}  // namespace train_digits
