// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

namespace tutti::test {

// Whether this is a run on epoll beside one on io_uring. Then some of the cases of a conformance suite suffice, because
// what is sent does not depend on the loop.
inline bool is_second_loop() {
  const char* const loop = std::getenv("TUTTI_LOOP");
  std::string why;
  return loop != nullptr && std::string_view(loop) == "epoll" && core::make_uring_backend(why) != nullptr;
}

}  // namespace tutti::test
