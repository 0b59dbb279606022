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

// Watchers by handle. A handle is an index and a generation, so that an event for a removed watcher is
// dropped.
class watcher_table {
 public:
  using handle = std::uint64_t;
  struct descriptor {
    int fd = -1;
    bool hot = false;  // carries messages
  };

  handle insert(int fd, watcher& w, bool hot) {
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
    entry& e = entries_[index];
    e.of = {fd, hot};
    e.target = &w;
    hot_ += hot ? 1 : 0;
    return (std::uint64_t{e.generation} << 32) | index;
  }
  // Returns what was watched; its descriptor is -1 for a handle that was removed.
  descriptor erase(handle h) noexcept {
    if (find(h) == nullptr) return {};
    const auto index = static_cast<std::uint32_t>(h);
    entry& e = entries_[index];
    ++e.generation;
    e.target = nullptr;
    hot_ -= e.of.hot ? 1 : 0;
    free_.push_back(index);
    return e.of;
  }
  watcher* find(handle h) const noexcept {
    const auto index = static_cast<std::uint32_t>(h);
    if (index >= entries_.size() || entries_[index].generation != h >> 32) return nullptr;
    return entries_[index].target;
  }
  // Requires that find(h) is not null.
  const descriptor& of(handle h) const noexcept { return entries_[static_cast<std::uint32_t>(h)].of; }
  bool any_hot() const noexcept { return hot_ > 0; }

 private:
  struct entry {
    descriptor of;
    std::uint32_t generation = 1;
    watcher* target = nullptr;
  };
  std::vector<entry> entries_;
  std::vector<std::uint32_t> free_;
  int hot_ = 0;
};

// Watches descriptors. It has one descriptor of its own, which becomes readable when a watched one has an
// event: the only one that the io_context waits for.
class backend : public source {
 public:
  using handle = watcher_table::handle;

  virtual const char* name() const noexcept = 0;
  // Watches `fd` for input, output (edges), hang-up and error until unwatch(). Throws tutti::error if it
  // cannot. A loop that is awake checks for events rarely; before it sleeps it checks always.
  virtual handle watch(int fd, watcher& w) = 0;
  // The same for a socket that carries messages. While there are any, each idle round checks for events.
  virtual handle watch_hot(int fd, watcher& w) = 0;
  // Stops watching. No later call reaches the watcher, not even from the batch being delivered.
  virtual void unwatch(handle h) noexcept = 0;
  // Adds an eventfd of which every write ends the loop's sleep, and does nothing else.
  virtual void watch_doorbell(int fd) = 0;
  virtual void unwatch_doorbell(int fd) noexcept = 0;
  virtual int wait_descriptor() const noexcept = 0;

  // Set if sockets that are likely to receive data are read without waiting for an event; events are then
  // checked less often.
  void set_glanced_at(bool yes) noexcept { glanced_at_ = yes; }

 protected:
  // Called once in each round, then is_hot_round(). Whether to check for events of all watches, and of hot
  // ones.
  bool is_round_of_all() noexcept { return (++rounds_ & 255U) == 0; }
  bool is_hot_round() const noexcept { return watched_.any_hot() && (!glanced_at_ || (rounds_ & 7U) == 0); }

  watcher_table watched_;

 private:
  bool glanced_at_ = false;
  unsigned rounds_ = 0;
};

// Returns the value of TUTTI_LOOP, or "auto". Throws errc::invalid_argument if it is another one.
std::string wanted_backend();
// Makes the backend selected by TUTTI_LOOP=io_uring|epoll. By default it is io_uring if the kernel and the
// build have it, otherwise epoll. Throws tutti::error, with the reason and the cure, if the selected one
// cannot be had.
std::unique_ptr<backend> make_backend();
std::unique_ptr<backend> make_epoll_backend();
// Returns null if this machine cannot; `why` then says why, and `code`, if given, has the kernel's error.
std::unique_ptr<backend> make_uring_backend(std::string& why, int* code = nullptr);

}  // namespace tutti::core
