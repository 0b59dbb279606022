// SPDX-License-Identifier: Apache-2.0
// A minimal source of a loop.
#pragma once

#include "base/unique_fd.hpp"
#include "core/progress_engine.hpp"

#include <sys/eventfd.h>

#include <atomic>
#include <functional>

namespace tutti::test {

// Another thread writes to it and notifies: a transport's memory, reduced to one number.
class mailbox final : public core::source {
 public:
  mailbox() : doorbell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // From any thread, but one at a time. `force` notifies even if the loop is awake.
  void put(int value, bool force = false) {
    cell_.store(value);
    if (force || (armed_.load() && armed_.exchange(false))) ::eventfd_write(doorbell_.get(), 1);
  }
  int doorbell() const noexcept { return doorbell_.get(); }
  int seen() const noexcept { return seen_.load(); }
  // Whether the loop sleeps or is about to sleep.
  bool armed() const noexcept { return armed_.load(); }

  // Called on the loop with each new number.
  std::function<void(int)> on_mail;

  bool poll() noexcept override {
    const int value = cell_.load();
    if (value == seen_.load(std::memory_order_relaxed)) return false;
    seen_.store(value);
    if (on_mail) on_mail(value);
    return true;
  }
  bool arm() noexcept override {
    armed_.store(true);
    return cell_.load() != seen_.load(std::memory_order_relaxed);
  }
  void disarm() noexcept override { armed_.store(false); }

 private:
  base::unique_fd doorbell_;
  std::atomic<int> cell_{0};
  std::atomic<int> seen_{0};
  std::atomic<bool> armed_{false};
};

}  // namespace tutti::test
