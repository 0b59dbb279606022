// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

namespace tutti::core {

base::unique_fd make_eventfd() {
  base::unique_fd made(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made)
    throw error(errc::resources,
                fmt::format("cannot make an eventfd: {}; raise `ulimit -n`", base::errno_text(errno)));
  return made;
}

std::string wanted_backend() {
  const std::string wanted = base::env_string("TUTTI_LOOP").value_or("auto");
  if (wanted != "auto" && wanted != "io_uring" && wanted != "epoll")
    throw error(errc::invalid_argument,
                fmt::format("TUTTI_LOOP='{}' is none of auto, io_uring, epoll", wanted));
  return wanted;
}

std::unique_ptr<backend> make_backend() {
  const std::string wanted = wanted_backend();
  if (wanted == "epoll") return make_epoll_backend();
  std::string why;
  int code = 0;
  if (auto ring = make_uring_backend(why, &code)) return ring;
  if (wanted == "io_uring" && code == ENOMEM)
    throw error(errc::resources,
                fmt::format("no memory for io_uring: {}; or unset TUTTI_LOOP, or set it to epoll, "
                            "which does the same",
                            why));
  if (wanted == "io_uring" && (code == EMFILE || code == ENFILE))
    throw error(
        errc::resources,
        fmt::format("this process may open no more descriptors for io_uring ({}); raise `ulimit -n`", why));
  if (wanted == "io_uring")
    throw error(
        errc::not_supported,
        fmt::format(
            "TUTTI_LOOP=io_uring, but io_uring cannot be used here: {}; unset TUTTI_LOOP or set it to "
            "epoll, which does the same",
            why));
  // A limit can be raised, so it is logged, once; what the system lacks is not.
  static std::atomic<bool> said{false};
  if (code == ENOMEM && !said.exchange(true)) {
    base::log_warning(fmt::format("no memory for io_uring, so this process uses epoll: {}", why));
  } else {
    base::log_info(fmt::format("using epoll: {}", why));
  }
  return make_epoll_backend();
}

}  // namespace tutti::core
