// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_file.hpp"

#include "base/fields.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

namespace {

constexpr std::string_view magic = "tutti-s2";  // changes with the form of store_request, too
constexpr off_t first_user = off_t{1} << 40;
constexpr off_t most_users = off_t{1} << 32;
// Below this size, compacting the log does not pay.
constexpr std::uint64_t small_log = 1u << 20;

struct flock byte_range(short type, off_t start, off_t length) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = length;
  return range;
}

std::string in_log(const store_request& change) { return base::to_bytes(base::to_bytes(change)); }

}  // namespace

// Descriptors are opened and closed under the mutex, so that a fork finds all of them in the list.
struct close_on_fork_fd::all {
  std::mutex mutex;
  std::vector<close_on_fork_fd*> list;

  // Never destroyed: a process may fork while it ends.
  static all& of_process() {
    static all* const made = [] {
      ::pthread_atfork([] { of_process().mutex.lock(); }, [] { of_process().mutex.unlock(); },
                       [] {
                         for (close_on_fork_fd* const owner : of_process().list) {
                           if (owner->fd_ >= 0) ::close(owner->fd_);
                           owner->fd_ = -1;
                         }
                         of_process().mutex.unlock();
                       });
      return new all;
    }();
    return *made;
  }
};

close_on_fork_fd::close_on_fork_fd(const char* path, int flags, mode_t mode) {
  all& a = all::of_process();
  int code = 0;
  {
    const std::scoped_lock hold(a.mutex);
    a.list.push_back(this);
    fd_ = ::open(path, flags | O_CLOEXEC, mode);
    code = errno;
  }
  errno = code;
}

close_on_fork_fd::~close_on_fork_fd() {
  all& a = all::of_process();
  const std::scoped_lock hold(a.mutex);
  std::erase(a.list, this);
  if (fd_ >= 0) ::close(fd_);
}

void store_file::damaged() const {
  base::throw_error(
      errc::protocol,
      "the store's file {} is damaged, or another program writes to it: stop the ranks, remove the "
      "file, and start them anew",
      path_);
}

void store_file::failed(const char* what, int code) const {
  const bool no_room = code == ENOSPC || code == EDQUOT || code == EFBIG;
  base::throw_error(no_room ? errc::resources : errc::system, "cannot {} {}: {}", what, path_,
                    base::write_error_text(code));
}

store_file::store_file(const std::string& path)
    : path_(path), fd_(path.c_str(), O_RDWR | O_CREAT | O_NOCTTY | O_NONBLOCK, S_IRUSR | S_IWUSR) {
  if (!fd_) {
    const int code = errno;
    const bool limit = code == EMFILE || code == ENFILE || code == ENOSPC || code == EDQUOT;
    base::throw_error(
        limit ? errc::resources : errc::invalid_argument,
        "cannot open the store's file {}: {}; name a file in a directory that exists, that this user "
        "may write to, and that all ranks see",
        path, base::errno_text(code));
  }
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0) failed("look at", errno);
  if (!S_ISREG(status.st_mode))
    base::throw_error(errc::invalid_argument, "{} is not a regular file: name one for the store to make",
                      path);
  // Its owner could make the ranks believe anything.
  if (status.st_uid != ::geteuid())
    base::throw_error(
        errc::invalid_argument,
        "the store's file {} belongs to another user (uid {}; this one is {}): choose another name, in "
        "a directory of your own",
        path, status.st_uid, ::geteuid());
}

store_file::~store_file() {
  if (user_ != 0) take_away_if_last();
  // close() alone would leave the locks to any process that shares the description, such as one that was just
  // cloned.
  struct flock everything = byte_range(F_UNLCK, 0, 0);
  ::fcntl(fd_.get(), F_OFD_SETLK, &everything);
}

void store_file::take_away_if_last() noexcept {
  // Others hold the lock for microseconds. If it cannot be had, the file stays, and the next run clears it.
  try {
    for (int attempt = 0; attempt < 20 && !try_lock(); ++attempt)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (locked_ && !anybody_else() && is_at_path()) ::unlink(path_.c_str());
  } catch (const std::exception&) {
  }
}

bool store_file::try_lock() {
  if (locked_) return false;
  if (!fd_)
    base::throw_error(errc::invalid_argument,
                      "{} was opened by the process that this one was forked from: open it anew after a fork",
                      path_);
  struct flock all = byte_range(F_WRLCK, 0, 1);
  while (::fcntl(fd_.get(), F_OFD_SETLK, &all) != 0) {
    const int code = errno;
    if (code == EINTR) continue;
    if (code == EAGAIN || code == EACCES) return false;
    base::throw_error(
        errc::not_supported,
        "{} cannot be locked: {}; its file system has no fcntl locks: put the file on another one "
        "(on NFS, one that is mounted with locking)",
        path_, base::errno_text(code));
  }
  locked_ = true;
  return true;
}

void store_file::unlock() noexcept {
  struct flock all = byte_range(F_UNLCK, 0, 1);
  ::fcntl(fd_.get(), F_OFD_SETLK, &all);
  locked_ = false;
}

bool store_file::is_at_path() const {
  struct stat mine{}, there{};
  return ::fstat(fd_.get(), &mine) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

bool store_file::others_lock(off_t start, off_t length) const {
  struct flock range = byte_range(F_WRLCK, start, length);
  if (::fcntl(fd_.get(), F_OFD_GETLK, &range) != 0) failed("ask for the locks of", errno);
  return range.l_type != F_UNLCK;
}

bool store_file::anybody_else() const { return others_lock(first_user, most_users); }

bool store_file::is_alive(std::uint64_t user) const {
  if (user == user_) return true;
  if (user >= static_cast<std::uint64_t>(most_users)) damaged();
  return others_lock(first_user + static_cast<off_t>(user), 1);
}

void store_file::enter() {
  header h;
  if (read_header(h) && !anybody_else()) {
    ++h.generation;
    h.begin = h.end = header_bytes;
  }
  const std::uint64_t number = h.next_user++;
  if (number >= static_cast<std::uint64_t>(most_users)) damaged();
  struct flock mine = byte_range(F_WRLCK, first_user + static_cast<off_t>(number), 1);
  if (::fcntl(fd_.get(), F_OFD_SETLK, &mine) != 0) failed("lock a part of", errno);
  write_header(h);
  user_ = number;
  if (h.end == header_bytes && ::ftruncate(fd_.get(), header_bytes) != 0) failed("shorten", errno);
}

bool store_file::read_header(header& into) {
  const std::string bytes = read(0, header_bytes);
  if (magic.starts_with(bytes)) return false;  // empty, or its first user died while writing it
  if (!bytes.starts_with(magic)) {
    if (!bytes.starts_with("tutti-s"))
      base::throw_error(errc::invalid_argument,
                        "{} holds something else than a store; it is left as it is: name another file",
                        path_);
    if (!anybody_else()) return false;  // a crashed run of another version has left it
    base::throw_error(errc::invalid_argument,
                      "{} is in use by ranks of another version of tutti: build all with the same", path_);
  }
  if (bytes.size() < header_bytes) return false;
  into = base::from_bytes<header>(std::string_view(bytes).substr(magic.size()), "");
  if (into.begin < header_bytes || into.end < into.begin || into.generation == 0) damaged();
  seen_ = bytes;
  return true;
}

void store_file::write_header(const header& h) {
  std::string bytes = std::string(magic) + base::to_bytes(h);
  put(0, bytes);
  seen_ = std::move(bytes);
  header_ = h;
}

bool store_file::may_have_changed() const {
  struct stat status{};
  return ::fstat(fd_.get(), &status) != 0 || status.st_nlink == 0 || read(0, header_bytes) != seen_;
}

void store_file::refresh(store_contents& contents) {
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0) failed("look at", errno);
  if (status.st_nlink == 0)
    base::throw_error(
        errc::peer_failed,
        "somebody removed {} while ranks were using it: start them all anew, and leave the file to "
        "them (the last one removes it)",
        path_);
  if (!read_header(header_)) damaged();
  if (header_.generation == generation_ && header_.end == read_to_) return;
  if (header_.generation != generation_ || header_.end < read_to_) {
    contents.clear();
    read_to_ = header_.begin;
    generation_ = 0;  // until all of it is read
  }
  if (header_.end > static_cast<std::uint64_t>(status.st_size)) damaged();
  const std::string log = read(read_to_, static_cast<std::size_t>(header_.end - read_to_));
  try {
    for (base::field_reader changes(log, ""); !changes.rest().empty();) {
      std::string next;
      changes.field(next);
      contents.carry_out(decode_request(next), path_);
    }
  } catch (const error&) {
    damaged();
  }
  read_to_ = header_.end;
  generation_ = header_.generation;
}

void store_file::write(store_contents& contents, const store_request& change) {
  const std::string bytes = in_log(change);
  header h = header_;
  h.end += bytes.size();
  try {
    put(header_.end, bytes);
    write_header(h);
  } catch (const error&) {
    contents.clear();
    generation_ = 0;
    throw;
  }
  read_to_ = h.end;
  if (h.end - h.begin <= std::max(small_log, compact_above_)) return;
  try {
    compact(contents);
  } catch (const error&) {
    compact_above_ = 2 * (h.end - h.begin);  // the change is made; later there may be room
  }
}

void store_file::compact(store_contents& contents) {
  std::string image;
  for (const auto& [key, value] : contents.copy()) image += in_log({.key = key, .value = value});
  compact_above_ = 4 * static_cast<std::uint64_t>(image.size());
  if (header_.end - header_.begin <= compact_above_) return;
  header h = header_;
  const bool in_front = header_bytes + image.size() <= h.begin;
  h.begin = in_front ? header_bytes : h.end;
  put(h.begin, image);
  h.end = h.begin + image.size();
  ++h.generation;
  write_header(h);
  read_to_ = h.end;
  generation_ = h.generation;
  // Returns the space of dropped history to the file system, if that is possible.
  if (in_front) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(h.end)) != 0) return;
  } else {
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, header_bytes,
                static_cast<off_t>(h.begin - header_bytes));
  }
}

std::string store_file::read(std::uint64_t from, std::size_t bytes) const {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::pread(fd_.get(), text.data() + have, bytes - have, static_cast<off_t>(from + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failed("read", errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

void store_file::put(std::uint64_t at, std::string_view bytes) const {
  const base::sigxfsz_block limit_is_an_error;
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) failed("write to", errno);
    bytes.remove_prefix(static_cast<std::size_t>(done));
    at += static_cast<std::uint64_t>(done);
  }
}

}  // namespace tutti::bootstrap
