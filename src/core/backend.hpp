// SPDX-License-Identifier: Apache-2.0
// The engine's view of descriptors: readiness, by epoll or by io_uring, as equals.
#pragma once

#include "core/engine.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::core {

// Told about its descriptor, from the loop. Edge-triggered: read or write until it would block.
class watcher {
 public:
  virtual void on_ready(bool readable, bool writable) noexcept = 0;  // an error or hang-up counts as both

 protected:
  ~watcher() = default;
};

// Watches descriptors, and has one descriptor of its own that becomes readable when a watched one has an
// event: the only thing the io_context needs to wait for.
class backend : public source {
 public:
  using handle = std::uint64_t;

  virtual const char* name() const noexcept = 0;
  // Watches `fd` for input, output (edges), hang-up and error until unwatch(). Throws tutti::error when it
  // cannot.
  virtual handle watch(int fd, watcher& w) = 0;
  // After this no call reaches the watcher, also none of the batch being delivered.
  virtual void unwatch(handle h) noexcept = 0;
  // An eventfd of which every write shall end the loop's sleep, and nothing else. Not by watch(): Linux (seen
  // on 6.18) loses all but the first notification when an eventfd polled by a ring would signal the ring's
  // registered eventfd.
  virtual void watch_doorbell(int fd) = 0;
  virtual void unwatch_doorbell(int fd) noexcept = 0;
  // Sockets that carry messages: while there are any, looking for events at every idle round is worth its
  // cost.
  virtual bool cheap_idle_check() const noexcept = 0;
  virtual int wait_descriptor() const noexcept = 0;

  void count_hot(int change) noexcept { hot_ += change; }
  // Those from which something is likely to come are read without waiting for an event: events are looked
  // at less often.
  void set_glanced_at(bool yes) noexcept { glanced_at_ = yes; }

 protected:
  bool worth_polling() noexcept {
    // Without data sockets only rare events (hang-ups, connections) come this way.
    if (glanced_at_) return (++skipped_ & 7U) == 0;
    return hot_ > 0 || cheap_idle_check() || (++skipped_ & 255U) == 0;
  }

 private:
  int hot_ = 0;
  bool glanced_at_ = false;
  unsigned skipped_ = 0;
};

// Chooses by TUTTI_LOOP=io_uring|epoll, otherwise io_uring where the kernel and the build have it, else
// epoll. Throws tutti::error when the one that was asked for cannot be had, with the reason and the cure.
std::unique_ptr<backend> make_backend();
std::unique_ptr<backend> make_epoll_backend();
// Null when this machine cannot; `why` says why, and `code`, where it is given, has the error of the kernel.
std::unique_ptr<backend> make_uring_backend(std::string& why, int* code = nullptr);

// Watchers by handle: a handle is an index and a generation, so that an event for a watcher that has gone is
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
  // The descriptor, or -1 for a handle that has gone.
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
