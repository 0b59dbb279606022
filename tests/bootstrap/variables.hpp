// SPDX-License-Identifier: Apache-2.0
// Sets exactly these variables of all that starters set, for tests of start-up.
#pragma once

#include <unistd.h>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::test {

// Variables not named are absent; an empty value counts as absent. Restores all at the end.
class variables {
 public:
  variables(std::initializer_list<std::pair<const char*, const char*>> wanted) {
    std::vector<std::string> known;
    for (char** variable = ::environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      const std::string name(text.substr(0, text.find('=')));
      if (is_of_a_starter(name)) known.push_back(name);
    }
    for (const auto& [name, value] : wanted) known.emplace_back(name);
    for (const std::string& name : known) {
      const char* const old = std::getenv(name.c_str());
      before_.emplace_back(name, old != nullptr ? std::optional<std::string>(old) : std::nullopt);
      ::unsetenv(name.c_str());
    }
    for (const auto& [name, value] : wanted)
      if (*value != '\0') ::setenv(name, value, 1);
  }
  variables(const variables&) = delete;
  variables& operator=(const variables&) = delete;
  ~variables() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

 private:
  static bool is_of_a_starter(std::string_view name) {
    for (const char* one : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"})
      if (name == one) return true;
    for (const char* beginning :
         {"TUTTI_", "MASTER_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_", "SLURM_", "TORCHELASTIC_"})
      if (name.starts_with(beginning) && name != "TUTTI_LOOP") return true;
    return false;
  }

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace tutti::test
