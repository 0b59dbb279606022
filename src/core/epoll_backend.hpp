// SPDX-License-Identifier: Apache-2.0
// Readiness by an epoll descriptor of the library, edge-triggered. The io_context waits for that one
// descriptor.
#pragma once

#include "core/backend.hpp"

namespace tutti::core {

class epoll_backend : public backend {
 public:
  epoll_backend();

  const char* name() const noexcept override { return "epoll"; }
  int wait_descriptor() const noexcept override { return epoll_.get(); }

  handle watch(int fd, watcher& w) override { return add(fd, w, false); }
  handle watch_hot(int fd, watcher& w) override { return add(fd, w, true); }
  void unwatch(handle h) noexcept override;
  void watch_doorbell(int fd) override;
  void unwatch_doorbell(int fd) noexcept override;

  bool poll() noexcept override {
    const bool all = is_round_of_all();
    return (all || is_hot_round()) && collect();
  }
  bool arm() noexcept override { return collect(); }

 protected:
  bool collect() noexcept;  // delivers the events that there are; returns whether there were any

 private:
  handle add(int fd, watcher& w, bool hot);

  base::unique_fd epoll_;
};

}  // namespace tutti::core
