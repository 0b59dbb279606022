// SPDX-License-Identifier: Apache-2.0
// Readiness by an epoll descriptor of the library, edge-triggered. The io_context waits for that one
// descriptor.
#include "base/unique_fd.hpp"
#include "core/backend.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

namespace tutti::core {
namespace {

class epoll_backend final : public backend {
 public:
  epoll_backend() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_)
      throw error(errc::resources, fmt::format("cannot create an epoll descriptor: {}; raise `ulimit -n`",
                                               std::strerror(errno)));
  }

  const char* name() const noexcept override { return "epoll"; }
  bool cheap_idle_check() const noexcept override { return false; }
  int wait_descriptor() const noexcept override { return epoll_.get(); }

  handle watch(int fd, watcher& w) override {
    const handle h = table_.insert(fd, w);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = h;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      const int code = errno;
      table_.erase(h);
      throw error(errc::resources, fmt::format("cannot watch descriptor {}: {}", fd, std::strerror(code)));
    }
    return h;
  }

  void unwatch(handle h) noexcept override {
    const int fd = table_.erase(h);
    if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }

  void watch_doorbell(int fd) override {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = 0;  // no watcher has this handle
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      throw error(errc::resources, fmt::format("cannot watch descriptor {}: {}", fd, std::strerror(errno)));
  }
  void unwatch_doorbell(int fd) noexcept override { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  bool poll() noexcept override { return worth_polling() && collect(); }
  bool arm() noexcept override { return collect(); }

 private:
  bool collect() noexcept {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
    for (int i = 0; i < count; ++i) {
      watcher* w = table_.find(events[i].data.u64);
      if (w == nullptr) continue;
      const bool broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
      w->on_ready(broken || (events[i].events & (EPOLLIN | EPOLLRDHUP)) != 0,
                  broken || (events[i].events & EPOLLOUT) != 0);
    }
    return count > 0;
  }

  base::unique_fd epoll_;
  watcher_table table_;
};

}  // namespace

std::unique_ptr<backend> make_epoll_backend() { return std::make_unique<epoll_backend>(); }

}  // namespace tutti::core
