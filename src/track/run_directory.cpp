// SPDX-License-Identifier: Apache-2.0
#include "track/run_directory.hpp"

#include "base/files.hpp"
#include "base/text.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <random>
#include <tutti/error.hpp>

namespace tutti::track {
namespace {

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path, int code) {
  throw error(errc::system, fmt::format("tracking cannot {} {}: {}; options::directory chooses another place",
                                        what, path.string(), base::errno_text(code)));
}

void make_directories(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) fail("make", path, code.value());
}

// Empty: there is no such link.
std::string target_of(const std::filesystem::path& link) {
  std::error_code code;
  const std::string target = std::filesystem::read_symlink(link, code).string();
  if (code && code != std::errc::no_such_file_or_directory) fail("read", link, code.value());
  return target;
}

// Makes a file beside `path`, which `put` (::rename or ::link) then names so. `write` fills it. Each call has a file of
// its own: several may write one path at a time. Returns false with errno.
template <class F>
bool write_beside(const std::filesystem::path& path, int (*put)(const char*, const char*), F write) {
  const std::filesystem::path beside =
      path.parent_path() / fmt::format(".new-{:08x}", std::random_device()());
  const base::unique_fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return false;
  const bool done = write(file.get()) && put(beside.c_str(), path.c_str()) == 0;
  const int code = errno;
  if (!done || put != &::rename) ::unlink(beside.c_str());
  errno = code;
  return done;
}

}  // namespace

// Two kinds of symbolic links, which even network file systems make atomically: which name an identity has,
// and, before there is a directory of a name, whose it is. A directory without an owner does not belong to a
// run: its name is taken.
std::filesystem::path claim_run_directory(const std::filesystem::path& parent, const std::string& identity,
                                          const std::string& wanted) {
  const std::filesystem::path links = parent / ".tutti";
  make_directories(links);
  const std::filesystem::path link = links / identity;
  for (int attempt = 1;;) {
    if (const std::string found = target_of(link); !found.empty()) return parent / found;
    const std::string name = attempt == 1 ? wanted : fmt::format("{}-{}", wanted, attempt);
    const std::filesystem::path made = parent / name, owner_link = links / ("name-" + name);
    std::string owner = target_of(owner_link);
    std::error_code ignored;
    if (owner.empty() && std::filesystem::exists(std::filesystem::symlink_status(made, ignored))) {
      // Its owner, if it has one, is older than itself.
      owner = target_of(owner_link);
      if (owner.empty()) owner = "nobody";
    }
    if (!owner.empty() && owner != identity) {
      ++attempt;
      continue;
    }
    if (owner.empty() && ::symlink(identity.c_str(), owner_link.c_str()) != 0) {
      if (errno != EEXIST) fail("make", owner_link, errno);
      continue;  // of another rank, or of another run: check again
    }
    if (::mkdir(made.c_str(), 0777) != 0 && errno != EEXIST) fail("make", made, errno);
    if (::symlink(name.c_str(), link.c_str()) == 0) return made;
    if (errno != EEXIST) fail("make", link, errno);
    // Another rank was faster, perhaps with another name: a second later.
    if (target_of(link) != name) {
      ::rmdir(made.c_str());
      ::unlink(owner_link.c_str());
    }
  }
}

// A symbolic link names the start that made the run: one of several simultaneous ones.
void check_resume(const std::filesystem::path& parent, const std::string& identity, const std::string& start,
                  track::resume rule, const std::string& id) {
  const std::filesystem::path links = parent / ".tutti", maker = links / ("made-" + identity);
  if (rule == track::resume::must) {
    if (target_of(maker).empty())
      throw error(
          errc::invalid_argument,
          fmt::format("there is no run with the id \"{}\" in {} to resume; options::resume = may makes "
                      "it, options::directory says where runs are",
                      id, parent.string()));
    return;
  }
  make_directories(links);
  if (::symlink(start.c_str(), maker.c_str()) == 0) return;
  if (errno != EEXIST) fail("make", maker, errno);
  if (rule == track::resume::never && target_of(maker) != start)
    throw error(errc::invalid_argument,
                fmt::format("a run with the id \"{}\" is already in {}; another options::id makes a new one, "
                            "options::resume = may goes on in it",
                            id, parent.string()));
}

std::string name_of_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);  // fmt 12 has no fmt::localtime
  return fmt::format("{:%Y-%m-%d_%H-%M-%S}", parts);
}

namespace {

bool is_control(unsigned char c) { return c < ' ' || c == 0x7F; }

// Of a word that is refused.
std::string shown(std::string word) {
  std::replace_if(word.begin(), word.end(), is_control, '?');
  return word.size() <= 120 ? word : word.substr(0, 120) + "...";
}

}  // namespace

void check_run_name(const std::string& name) {
  if (name.find('/') == name.npos && name.find('\0') == name.npos && (name.empty() || name.front() != '.') &&
      name.size() <= 200)
    return;
  throw error(errc::invalid_argument,
              fmt::format("\"{}\" cannot be options::name: it names one directory, in at most 200 bytes "
                          "without a slash, and begins with no dot; options::directory says where it is",
                          shown(name)));
}

void check_word(const char* what, const std::string& word) {
  const bool printable = std::none_of(word.begin(), word.end(), is_control);
  if (!word.empty() && word.size() <= 100 && word.front() != '.' && word.find('/') == word.npos && printable)
    return;
  throw error(errc::invalid_argument,
              fmt::format("\"{}\" cannot be options::{}: it is 1 to 100 printable bytes without a slash, and "
                          "begins with no dot",
                          shown(word), what));
}

bool replace_file(const std::filesystem::path& path, const std::string& content) {
  return write_beside(path, &::rename,
                      [&](int to) { return base::write_all(to, content) == content.size(); });
}

bool create_file_once(const std::filesystem::path& path, const std::string& content) {
  return write_beside(path, &::link,
                      [&](int to) { return base::write_all(to, content) == content.size(); }) ||
         errno == EEXIST;
}

bool copy_contents(const std::filesystem::path& from, const std::filesystem::path& path) {
  const base::unique_fd source(::open(from.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!source || ::fstat(source.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return false;
  }
  constexpr std::size_t at_once = std::size_t{1} << 30;
  return write_beside(path, &::rename, [&](int to) {
    // What the kernel does not copy by itself is read.
    while (::copy_file_range(source.get(), nullptr, to, nullptr, at_once, 0) > 0) {
    }
    std::string block(std::size_t{1} << 16, '\0');
    for (;;) {
      const ssize_t n = TEMP_FAILURE_RETRY(::read(source.get(), block.data(), block.size()));
      if (n <= 0) return n == 0 && ::fchmod(to, status.st_mode & 0777) == 0;
      const auto bytes = static_cast<std::size_t>(n);
      if (base::write_all(to, {block.data(), bytes}) != bytes) return false;
    }
  });
}

append_file::append_file(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_)
    throw error(errc::system, "tracking cannot write " + path.string() + ": " + base::errno_text(errno));
}

bool append_file::lock() noexcept {
  // A file system without locks cannot report another writer.
  return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::uint64_t append_file::size() const noexcept {
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  return end > 0 ? static_cast<std::uint64_t>(end) : 0;
}

int append_file::cut_to_whole_lines() noexcept {
  char block[4096];
  const std::uint64_t all = size();
  std::uint64_t end = all;
  while (end > 0) {
    const std::uint64_t begin = end - std::min<std::uint64_t>(end, sizeof block);
    const ssize_t n = ::pread(file_.get(), block, end - begin, static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    const std::size_t newline = std::string_view(block, static_cast<std::size_t>(n)).rfind('\n');
    end = newline == std::string_view::npos ? begin : begin + newline + 1;
    if (newline != std::string_view::npos) break;
  }
  return end == all || ::ftruncate(file_.get(), static_cast<off_t>(end)) == 0 ? 0 : errno;
}

int append_file::append(std::string_view bytes) noexcept {
  const std::size_t written = base::write_all(file_.get(), bytes);
  struct stat status{};
  if (written == bytes.size()) return ::fstat(file_.get(), &status) == 0 && status.st_nlink == 0 ? ENOENT : 0;
  const int code = errno;
  // If that fails, too, a reader finds a line that is cut short.
  if (written > 0) {
    [[maybe_unused]] const int undone = ::ftruncate(file_.get(), static_cast<off_t>(size() - written));
  }
  return code;
}

}  // namespace tutti::track
