// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include "base/env.hpp"
#include "base/log.hpp"

#include <fmt/format.h>

namespace tutti::core {

std::unique_ptr<backend> make_backend() {
  const std::string wanted = base::env_string("TUTTI_LOOP").value_or("auto");
  if (wanted != "auto" && wanted != "io_uring" && wanted != "epoll")
    throw error(errc::invalid_argument,
                fmt::format("TUTTI_LOOP='{}' is none of auto, io_uring, epoll", wanted));
  if (wanted == "epoll") return make_epoll_backend();
  std::string why;
  if (auto ring = make_uring_backend(why)) return ring;
  if (wanted == "io_uring")
    throw error(
        errc::not_supported,
        fmt::format(
            "TUTTI_LOOP=io_uring, but io_uring cannot be used here: {}; unset TUTTI_LOOP or set it to "
            "epoll, which does the same",
            why));
  base::log_info(fmt::format("using epoll: {}", why));
  return make_epoll_backend();
}

}  // namespace tutti::core
