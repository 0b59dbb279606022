// SPDX-License-Identifier: Apache-2.0
#include "track/run_facts.hpp"

#include "base/files.hpp"
#include "base/process_state.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <sstream>

namespace tutti::track {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  const std::string all = base::contents_of(path);
  return all.substr(0, all.find('\n'));
}

// Of a file in which each ends with a zero.
std::vector<std::string> words_of(const fs::path& path) {
  std::vector<std::string> words;
  std::istringstream all(base::contents_of(path));
  for (std::string word; std::getline(all, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

process_identity this_process() {
  process_identity me;
  utsname system{};
  if (::uname(&system) == 0) me.host = system.nodename;
  me.boot = first_line("/proc/sys/kernel/random/boot_id");
  me.pid_space = base::namespace_of("pid");
  me.pid = ::getpid();
  me.started_ticks = base::start_of_process(me.pid);
  return me;
}

bool names_a_secret(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(c == '-' ? '_' : std::toupper(c)); });
  for (const char* part :
       {"SECRET", "TOKEN", "PASS", "PWD_", "KEY", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "SIGNATURE",
        "SESSION", "BEARER", "JWT", "NETRC", "WEBHOOK", "CREDS", "CONNECTION_STRING"})
    if (upper.find(part) != upper.npos) return true;
  const bool is_directory = upper == "PWD" || upper == "OLDPWD";
  return (upper.ends_with("PWD") && !is_directory) || upper.ends_with("_PW") || upper.ends_with("_PAT") ||
         upper.ends_with("_SAS") || upper.ends_with("_DSN");
}

std::string without_passwords(std::string_view text) {
  std::string out;
  for (std::size_t at; (at = text.find("://")) != text.npos;) {
    out += text.substr(0, at + 3);
    text.remove_prefix(at + 3);
    const std::size_t end = std::min(text.find_first_of("/ \t\"'"), text.size());
    const std::size_t host = text.substr(0, end).rfind('@');
    if (host == text.npos) continue;
    out += removed;
    text.remove_prefix(host);
  }
  return out + std::string(text);
}

std::vector<std::string> without_secrets(std::vector<std::string> words) {
  bool next_is_secret = false;
  for (std::string& word : words) {
    const std::size_t equals = word.find('=');
    const bool is_option = word.starts_with('-');
    if (equals != word.npos && names_a_secret(word.substr(0, equals))) {
      word = word.substr(0, equals + 1) + std::string(removed);
      next_is_secret = false;
    } else if (next_is_secret && !is_option) {
      word = removed;
      next_is_secret = false;
    } else {
      next_is_secret = is_option && equals == word.npos && names_a_secret(word);
      word = without_passwords(word);
    }
  }
  return words;
}

std::vector<std::string> command_line() { return without_secrets(words_of("/proc/self/cmdline")); }

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> all;
  // As of the start of the process: other threads may change `environ` while it is read.
  for (const std::string& entry : words_of("/proc/self/environ")) {
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    const std::string name = entry.substr(0, equals);
    all[name] = names_a_secret(name) ? std::string(removed) : without_passwords(entry.substr(equals + 1));
  }
  return all;
}

git_state git_of(const fs::path& directory) {
  std::error_code code;
  fs::path at = fs::absolute(directory, code);
  while (!code && !fs::exists(at / ".git", code) && at != at.parent_path()) at = at.parent_path();
  fs::path git = at / ".git";
  // For an additional working tree, or a submodule: a file that names the directory.
  if (fs::is_regular_file(git, code)) {
    const std::string line = first_line(git);
    if (!line.starts_with("gitdir: ")) return {};
    git = at / line.substr(8);
  }
  const std::string head = first_line(git / "HEAD");
  if (!head.starts_with("ref: ")) return {head, ""};
  const std::string reference = head.substr(5);
  git_state found;
  found.branch = reference.starts_with("refs/heads/") ? reference.substr(11) : reference;
  fs::path common = git;
  if (const std::string line = first_line(git / "commondir"); !line.empty()) common = git / line;
  found.revision = first_line(common / reference);
  if (!found.revision.empty()) return found;
  std::istringstream packed(base::contents_of(common / "packed-refs"));
  for (std::string line; std::getline(packed, line);)
    if (line.ends_with(" " + reference)) found.revision = line.substr(0, line.find(' '));
  return found;
}

std::map<std::string, std::string> versions() {
  std::map<std::string, std::string> all{{"tutti", TUTTI_VERSION}};
#if defined(__clang__)
  all["compiler"] = __VERSION__;
#else
  all["compiler"] = std::string("g++ ") + __VERSION__;
#endif
  utsname system{};
  if (::uname(&system) == 0)
    all["kernel"] = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  return all;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tutti::track
