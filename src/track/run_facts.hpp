// SPDX-License-Identifier: Apache-2.0
// What a process can say about itself, so that a run can be understood and repeated later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::track {

inline constexpr std::string_view removed = "(removed)";

// Identifies a process, also after its number has been reused.
struct process_identity {
  std::string host;
  std::string boot;                 // differs for each start of each kernel
  std::uint64_t pid_space = 0;      // the pid namespace; 0: not known
  std::int64_t pid = 0;             // in that namespace
  std::uint64_t started_ticks = 0;  // base::start_of_process()
};
process_identity this_process();

// Without possible secrets: variables and arguments whose names suggest them, and passwords in URLs.
std::vector<std::string> command_line();
std::map<std::string, std::string> environment();

bool names_a_secret(std::string_view name);
std::string without_passwords(std::string_view text);                      // scheme://user:password@host
std::vector<std::string> without_secrets(std::vector<std::string> words);  // --token=x, --token x

// The git checkout around `directory`, read from its files; empty if there is none.
struct git_state {
  std::string revision;
  std::string branch;
};
git_state git_of(const std::filesystem::path& directory);

// "tutti", "compiler", "kernel", ... and their versions.
std::map<std::string, std::string> versions();

double seconds_since_1970();

}  // namespace tutti::track
