// SPDX-License-Identifier: Apache-2.0
// backend: the readiness of descriptors as the engine sees it, by epoll or io_uring as equals.
#pragma once

#include "base/id_table.hpp"
#include "base/unique_fd.hpp"
#include "core/progress_engine.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::core {

// Receives the events of a descriptor, from the loop. Edge-triggered: read or write until it would block.
class watcher {
 public:
  virtual void on_ready(bool readable, bool writable) noexcept = 0;  // an error or hang-up counts as both

  // Of its one watch: written by the backend only, and read by unwatch().
  int watched_fd = -1;
  bool hot = false;  // carries messages

 protected:
  ~watcher() = default;
};

// Watches descriptors by an epoll descriptor of its own, edge-triggered: the only one that the io_context waits
// for. io_uring adds to this (uring_backend.cpp).
class backend : public source {
 public:
  using handle = std::uint64_t;

  backend();
  virtual const char* name() const noexcept { return "epoll"; }
  // Watches `fd` for input, output (edges), hang-up and error until unwatch(). Throws tutti::error if it
  // cannot. A loop that is awake checks for events rarely; before it sleeps it checks always.
  handle watch(int fd, watcher& w) { return add(fd, w, false); }
  // The same for a socket that carries messages. While there are any, each idle round checks for events.
  virtual handle watch_hot(int fd, watcher& w) { return add(fd, w, true); }
  // Stops watching. No later call reaches the watcher, not even from the batch being delivered.
  virtual void unwatch(handle h) noexcept;
  // Adds an eventfd of which every write ends the loop's sleep, and does nothing else.
  void watch_doorbell(int fd);
  void unwatch_doorbell(int fd) noexcept;
  int wait_descriptor() const noexcept { return epoll_.get(); }

  // Set if sockets are read without waiting for an event; events are then checked less often.
  void set_glanced_at(bool yes) noexcept { glanced_at_ = yes; }

  bool poll() noexcept override {
    const bool all = is_round_of_all();
    return (all || is_hot_round()) && collect();
  }
  bool arm() noexcept override { return collect(); }

 protected:
  // Whether to check for events of all watches, and of hot ones; each called once in a round, in this order.
  bool is_round_of_all() noexcept { return (++rounds_ & 255U) == 0; }
  bool is_hot_round() const noexcept { return hot_ > 0 && (!glanced_at_ || (rounds_ & 7U) == 0); }
  bool collect() noexcept;  // delivers the events that epoll has; returns whether there were any

  handle insert(int fd, watcher& w, bool hot) {
    const handle h = watched_.insert(w);
    w.watched_fd = fd;
    w.hot = hot;
    hot_ += hot ? 1 : 0;
    return h;
  }
  // Returns null for a handle that was removed.
  watcher* remove(handle h) noexcept {
    watcher* const w = watched_.find(h);
    watched_.erase(h);
    if (w != nullptr) hot_ -= w->hot ? 1 : 0;
    return w;
  }

  base::id_table<watcher> watched_;  // an event for a handle that was removed finds nothing
  int hot_ = 0;                      // number of watchers that are hot

 private:
  handle add(int fd, watcher& w, bool hot);

  base::unique_fd epoll_;
  bool glanced_at_ = false;
  unsigned rounds_ = 0;
};

// Makes an eventfd. Throws errc::resources.
base::unique_fd make_eventfd();

// Returns the value of TUTTI_LOOP, or "auto". Throws errc::invalid_argument if it is another one.
std::string wanted_backend();
// Makes the backend selected by TUTTI_LOOP=io_uring|epoll; by default io_uring if the kernel and the build have
// it, otherwise epoll. Throws tutti::error, with the reason and the cure, if it cannot.
std::unique_ptr<backend> make_backend();
// Returns null if this machine cannot; `why` then says why, and `code`, if given, has the kernel's error.
std::unique_ptr<backend> make_uring_backend(std::string& why, int* code = nullptr);

}  // namespace tutti::core
