// SPDX-License-Identifier: Apache-2.0
// backend: the readiness of descriptors as the engine sees it, by epoll or io_uring as equals.
#pragma once

#include "core/engine.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::core {

// Receives the events of a descriptor, from the loop. Edge-triggered: read or write until it would block.
class watcher {
 public:
  virtual void on_ready(bool readable, bool writable) noexcept = 0;  // an error or hang-up counts as both

 protected:
  ~watcher() = default;
};

// Watches descriptors. It has one descriptor of its own, which becomes readable when a watched one has an
// event: the only one that the io_context waits for.
class backend : public source {
 public:
  using handle = std::uint64_t;

  virtual const char* name() const noexcept = 0;
  // Watches `fd` for input, output (edges), hang-up and error until unwatch(). Throws tutti::error if it
  // cannot.
  virtual handle watch(int fd, watcher& w) = 0;
  // Stops watching. No later call reaches the watcher, not even from the batch being delivered.
  virtual void unwatch(handle h) noexcept = 0;
  // Adds an eventfd of which every write ends the loop's sleep, and does nothing else. It does not use
  // watch(): if an eventfd polled by a ring signals the ring's registered eventfd, Linux (seen on 6.18) loses
  // all but the first notification.
  virtual void watch_doorbell(int fd) = 0;
  virtual void unwatch_doorbell(int fd) noexcept = 0;
  // Counts sockets that carry messages. If there are any, checking for events in every idle round pays.
  virtual bool cheap_idle_check() const noexcept = 0;
  virtual int wait_descriptor() const noexcept = 0;

  void count_hot(int change) noexcept { hot_ += change; }
  // Set if sockets that are likely to receive data are read without waiting for an event; events are then
  // checked less often.
  void set_glanced_at(bool yes) noexcept { glanced_at_ = yes; }

 protected:
  bool worth_polling() noexcept {
    // Without data sockets only rare events (hang-ups, connections) arrive.
    if (glanced_at_) return (++skipped_ & 7U) == 0;
    return hot_ > 0 || cheap_idle_check() || (++skipped_ & 255U) == 0;
  }

 private:
  int hot_ = 0;
  bool glanced_at_ = false;
  unsigned skipped_ = 0;
};

// Makes the backend selected by TUTTI_LOOP=io_uring|epoll. By default it is io_uring if the kernel and the
// build have it, otherwise epoll. Throws tutti::error, with the reason and the cure, if the selected one
// cannot be had.
std::unique_ptr<backend> make_backend();
std::unique_ptr<backend> make_epoll_backend();
// Returns null if this machine cannot; `why` then says why, and `code`, if given, has the kernel's error.
std::unique_ptr<backend> make_uring_backend(std::string& why, int* code = nullptr);

// Watchers by handle. A handle is an index and a generation, so that an event for a removed watcher is
// dropped.
class watcher_table {
 public:
  backend::handle insert(int fd, watcher& w) {
    std::uint32_t index;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(entries_.size());
      if (free_.capacity() <= entries_.size())
        free_.reserve(2 * entries_.size() + 8);  // for erase(), which cannot fail
      entries_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    entries_[index].fd = fd;
    entries_[index].target = &w;
    return (std::uint64_t{entries_[index].generation} << 32) | index;
  }
  // Returns the descriptor, or -1 for a handle that was removed.
  int erase(backend::handle h) noexcept {
    const auto index = static_cast<std::uint32_t>(h);
    if (index >= entries_.size() || entries_[index].generation != h >> 32) return -1;
    entry& e = entries_[index];
    const int fd = e.fd;
    ++e.generation;
    e.target = nullptr;
    free_.push_back(index);
    return fd;
  }
  watcher* find(backend::handle h) const noexcept {
    const auto index = static_cast<std::uint32_t>(h);
    if (index >= entries_.size() || entries_[index].generation != h >> 32) return nullptr;
    return entries_[index].target;
  }
  int descriptor(backend::handle h) const noexcept { return entries_[static_cast<std::uint32_t>(h)].fd; }

 private:
  struct entry {
    int fd = -1;
    std::uint32_t generation = 1;
    watcher* target = nullptr;
  };
  std::vector<entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::core
