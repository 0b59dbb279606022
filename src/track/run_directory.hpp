// SPDX-License-Identifier: Apache-2.0
// run_directory: ranks agree on the directory of a run without messages. The first one makes it, and leaves
// symbolic links under its name and the run's identity, which can be made only once; the others follow them.
// Works wherever they share the file system. Also how files in it are written.
#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tutti/track.hpp>

namespace tutti::track {

// `identity` is the same on all ranks of the run, and differs for all other runs. `wanted` is its name if
// that is free; otherwise "-2", "-3", ... is appended. Throws tutti::error (errc::system) that names the
// path.
std::filesystem::path claim_run_directory(const std::filesystem::path& parent, const std::string& identity,
                                          const std::string& wanted);

// Checks, before it is claimed, whether a run of this identity may be opened. `start` is the same on all
// ranks that open it together, and differs for each other start. Throws errc::invalid_argument, and
// errc::system like claim_run_directory.
void check_resume(const std::filesystem::path& parent, const std::string& identity, const std::string& start,
                  track::resume rule, const std::string& id);

// Local time as a name: "2026-01-31_23-59-59".
std::string name_of_now();

// Throws errc::invalid_argument for a name that leaves its directory or is hidden in it.
void check_run_name(const std::string& name);
// The same for options::id and options::label, which `what` names; at most 100 bytes, all printable.
void check_word(const char* what, const std::string& word);

// Replaces a file, or a link, as a whole or not at all, also for concurrent readers and writers: written beside it,
// then renamed.
// Returns false with errno.
bool replace_file(const std::filesystem::path& path, const std::string& content);
// The same, unless the file exists: it is then left, and true returned.
bool create_file_once(const std::filesystem::path& path, const std::string& content);

// Copies a regular file and its permissions in the same way, to its end: files of /proc and /sys have sizes that are not
// theirs.
bool copy_contents(const std::filesystem::path& from, const std::filesystem::path& path);

// A file that grows by whole pieces.
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
  // Appends all or nothing: what a full disk has taken is removed again. Returns 0 or errno; ENOENT: the file was
  // deleted, so nobody can read it.
  int append(std::string_view bytes) noexcept;
  std::uint64_t size() const noexcept;

 private:
  base::unique_fd file_;
};

}  // namespace tutti::track
