// SPDX-License-Identifier: Apache-2.0
// Sets an environment variable for a scope. No other thread may read the environment when the scope begins or
// ends.
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>

namespace tutti::test {

class variable {
 public:
  variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const now = ::getenv(name_.c_str())) before_ = now;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~variable() {
    if (before_)
      ::setenv(name_.c_str(), before_->c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace tutti::test
