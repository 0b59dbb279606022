// SPDX-License-Identifier: Apache-2.0
// Runs a test on each kind of loop that this machine has.
#pragma once

#include "core/backend.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

namespace tutti::test {

// Sets TUTTI_LOOP during its lifetime. No other thread may read the environment then.
class forced_loop {
 public:
  explicit forced_loop(const char* name) {
    if (const char* text = std::getenv("TUTTI_LOOP")) before_ = text;
    ::setenv("TUTTI_LOOP", name, 1);
  }
  forced_loop(const forced_loop&) = delete;
  ~forced_loop() {
    if (before_) {
      ::setenv("TUTTI_LOOP", before_->c_str(), 1);
    } else {
      ::unsetenv("TUTTI_LOOP");
    }
  }

 private:
  std::optional<std::string> before_;
};

// Runs body() with TUTTI_LOOP=epoll, then with TUTTI_LOOP=io_uring, which is a counted skip without io_uring.
template <class Body>
void on_each_loop(Body body) {
  for (const std::string name : {"epoll", "io_uring"}) {
    CAPTURE(name);
    const forced_loop forced(name.c_str());
    if (std::string why; name == "io_uring" && !core::make_uring_backend(why)) {
      count_skip(__FILE__, __LINE__, "the io_uring half of a test: " + why);
      continue;
    }
    body();
  }
}

}  // namespace tutti::test
