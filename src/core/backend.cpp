// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "core/socket_io.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

namespace tutti::core {
namespace {

constexpr std::uint64_t doorbell = 0;  // no watcher has this handle

// Returns false, with errno, if the descriptor cannot be watched.
bool add_to(const base::unique_fd& epoll, int fd, std::uint32_t events, std::uint64_t handle) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.u64 = handle;
  return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

[[noreturn]] void throw_cannot_watch(int fd, int code) {
  base::throw_error(errc::resources, "cannot watch descriptor {}: {}", fd, base::errno_text(code));
}

[[noreturn]] void throw_no_ring(int code, const std::string& why) {
  if (code == ENOMEM)
    base::throw_error(errc::resources,
                      "no memory for io_uring: {}; or unset TUTTI_LOOP, or set it to epoll, "
                      "which does the same",
                      why);
  if (out_of_descriptors(code))
    base::throw_error(errc::resources,
                      "this process may open no more descriptors for io_uring ({}); raise `ulimit -n`", why);
  base::throw_error(errc::not_supported,
                    "TUTTI_LOOP=io_uring, but io_uring cannot be used here: {}; unset TUTTI_LOOP or set "
                    "it to epoll, which does the same",
                    why);
}

}  // namespace

backend::backend() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_)
    base::throw_error(errc::resources, "cannot create an epoll descriptor: {}; raise `ulimit -n`",
                      base::errno_text(errno));
}

backend::handle backend::add(int fd, watcher& w, bool hot) {
  const handle h = insert(fd, w, hot);
  if (!add_to(epoll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, h)) {
    const int code = errno;
    remove(h);
    throw_cannot_watch(fd, code);
  }
  return h;
}

void backend::unwatch(handle h) noexcept {
  if (const watcher* const w = remove(h)) unwatch_doorbell(w->watched_fd);
}

void backend::watch_doorbell(int fd) {
  if (!add_to(epoll_, fd, EPOLLIN, doorbell)) throw_cannot_watch(fd, errno);
}
void backend::unwatch_doorbell(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool backend::collect() noexcept {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    watcher* w = watched_.find(events[i].data.u64);
    if (w == nullptr) continue;
    const bool broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
    w->on_ready(broken || (events[i].events & (EPOLLIN | EPOLLRDHUP)) != 0,
                broken || (events[i].events & EPOLLOUT) != 0);
  }
  return count > 0;
}

base::unique_fd make_eventfd() {
  base::unique_fd made(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made)
    base::throw_error(errc::resources, "cannot make an eventfd: {}; raise `ulimit -n`",
                      base::errno_text(errno));
  return made;
}

std::string wanted_backend() {
  const std::string wanted = base::env_string("TUTTI_LOOP").value_or("auto");
  if (wanted != "auto" && wanted != "io_uring" && wanted != "epoll")
    base::throw_error(errc::invalid_argument, "TUTTI_LOOP='{}' is none of auto, io_uring, epoll", wanted);
  return wanted;
}

std::unique_ptr<backend> make_backend() {
  const std::string wanted = wanted_backend();
  if (wanted == "epoll") return std::make_unique<backend>();
  std::string why;
  int code = 0;
  if (auto ring = make_uring_backend(why, &code)) return ring;
  if (wanted == "io_uring") throw_no_ring(code, why);
  // A limit can be raised, so it is logged, once; what the system lacks is not.
  static std::atomic<bool> said{false};
  if (code == ENOMEM && !said.exchange(true)) {
    base::log_warning(fmt::format("no memory for io_uring, so this process uses epoll: {}", why));
  } else {
    base::log_info(fmt::format("using epoll: {}", why));
  }
  return std::make_unique<backend>();
}

}  // namespace tutti::core
