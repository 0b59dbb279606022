// SPDX-License-Identifier: Apache-2.0
// store_file: the file behind file_store: its lock, its format, and which users are alive.
//
// The file has a header and, behind it, a growing log of changes: a user reads only what is new to it.
//
//   header  magic (8 bytes), generation, begin and end of the log, number of the next user (8 bytes each)
//   change  length of what follows (4), a store_request that makes it
// The end in the header moves after a change has been written, so an unfinished change of a dead writer does
// not count. A log that is mostly history is rewritten elsewhere in the file, with another generation.
//
// Locks are fcntl's, of open file descriptions. Locks of processes would be freed by the close() of any other
// descriptor of the file, and would not exclude threads. Byte 0 locks the contents. User n locks byte
// `first_user` + n as long as it lives; the kernel unlocks it however that user ends. So a file left by a
// crashed run is told from one in use.
//
// A process forked from a user shares its open file description, and with it the locks, which would outlive the
// user. So the child closes its copy of the descriptor, and a leaving user unlocks explicitly.
#pragma once

#include "bootstrap/store_contents.hpp"

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::bootstrap {

// Owns a file descriptor that the child of a fork closes before fork() returns there. (Linux has no O_CLOFORK.)
// Children made by clone() without fork(), by vfork() and by posix_spawn() keep it until exec.
class close_on_fork_fd {
 public:
  // Like open(2) with O_CLOEXEC; on failure get() is -1 and errno says why.
  close_on_fork_fd(const char* path, int flags, mode_t mode);
  close_on_fork_fd(const close_on_fork_fd&) = delete;
  close_on_fork_fd& operator=(const close_on_fork_fd&) = delete;
  ~close_on_fork_fd();

  int get() const noexcept { return fd_; }  // -1 in a forked child
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  struct all;

  int fd_ = -1;
};

class store_file {
 public:
  // Opens the file, or creates it. Throws invalid_argument (no such directory, not a regular file, another
  // user's file), resources, system.
  explicit store_file(const std::string& path);
  store_file(const store_file&) = delete;
  store_file& operator=(const store_file&) = delete;
  ~store_file();  // leaves: the last user removes the file

  // Returns false if another user has the lock, or another holder in this process has taken it through this
  // object. Throws not_supported if the file system has no locks, invalid_argument in a process forked since.
  bool try_lock();
  void unlock() noexcept;

  // The functions below are called with the lock held.

  // Returns false if this file is no longer the one at the path, because its last user removed it: open
  // another.
  bool is_at_path() const;
  // Becomes a user. If there is no other, earlier contents are dropped. Throws invalid_argument if the file
  // is something else.
  void enter();
  // Applies what others have changed since the last call. Throws peer_failed (the file was removed), protocol (it
  // is damaged), system.
  void refresh(store_contents& contents);
  // Records a change that `contents` already has. Throws resources (the disk is full) or system. The file is
  // then unchanged, and the next refresh() corrects `contents`.
  void write(store_contents& contents, const store_request& change);

  // The number of this user, different from all others of the file.
  std::uint64_t user() const noexcept { return user_; }
  bool is_alive(std::uint64_t user) const;

  // Whether refresh() may find something; needs no lock. On network file systems it may return false for a
  // while.
  bool may_have_changed() const;
  // For a watch on the file.
  int descriptor() const noexcept { return fd_.get(); }

 private:
  static constexpr std::uint64_t header_bytes = 40;
  struct header {
    std::uint64_t generation = 1;
    std::uint64_t begin = header_bytes;
    std::uint64_t end = header_bytes;
    std::uint64_t next_user = 1;
  };

  bool read_header(header& into);  // false: the file has none yet
  void write_header(const header& h);
  bool others_lock(off_t start, off_t length) const;
  bool anybody_else() const;
  void compact(store_contents& contents);
  void take_away_if_last() noexcept;
  std::string read(std::uint64_t from, std::size_t bytes) const;
  void put(std::uint64_t at, std::string_view bytes) const;
  [[noreturn]] void damaged() const;
  [[noreturn]] void failed(const char* what, int code) const;

  std::string path_;
  close_on_fork_fd fd_;
  bool locked_ = false;
  std::uint64_t user_ = 0;  // 0: not entered
  header header_;
  std::string seen_;              // the header as in the file
  std::uint64_t read_to_ = 0;     // up to here `contents` has the log
  std::uint64_t generation_ = 0;  // of what `contents` has; 0: nothing
  std::uint64_t compact_above_ = 0;
};

}  // namespace tutti::bootstrap
