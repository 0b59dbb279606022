// SPDX-License-Identifier: Apache-2.0
#include "core/epoll_backend.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

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
  throw error(errc::resources, fmt::format("cannot watch descriptor {}: {}", fd, std::strerror(code)));
}

}  // namespace

epoll_backend::epoll_backend() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_)
    throw error(errc::resources, fmt::format("cannot create an epoll descriptor: {}; raise `ulimit -n`",
                                             std::strerror(errno)));
}

backend::handle epoll_backend::add(int fd, watcher& w, bool hot) {
  const handle h = insert(fd, w, hot);
  if (!add_to(epoll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, h)) {
    const int code = errno;
    remove(h);
    throw_cannot_watch(fd, code);
  }
  return h;
}

void epoll_backend::unwatch(handle h) noexcept {
  if (const watcher* const w = remove(h)) unwatch_doorbell(w->watched_fd);
}

void epoll_backend::watch_doorbell(int fd) {
  if (!add_to(epoll_, fd, EPOLLIN, doorbell)) throw_cannot_watch(fd, errno);
}
void epoll_backend::unwatch_doorbell(int fd) noexcept {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool epoll_backend::collect() noexcept {
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

std::unique_ptr<backend> make_epoll_backend() { return std::make_unique<epoll_backend>(); }

}  // namespace tutti::core
