// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "launched.hpp"

namespace tutti::launch::testing {

// A name service for all pods of a rehearsal: a file that replaces /etc/hosts.
class pod_names {
 public:
  pod_names() : path_(directory_.path() + "/hosts") { write(""); }
  // Replaces all names except localhost by these lines, also for running programs.
  void write(const std::string& lines) const { std::ofstream(path_) << "127.0.0.1 localhost\n" << lines; }
  static bool available() {
    return std::system("unshare -m mount --bind /etc/hosts /etc/hosts >/dev/null 2>&1") == 0;
  }
  // The arguments of `env` for a command with these names.
  std::vector<std::string> seen_by(const std::vector<std::string>& command) const {
    std::vector<std::string> all = {
        "unshare", "-m", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\"", path_};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

 private:
  temporary_directory directory_;
  std::string path_;
};

}  // namespace tutti::launch::testing
