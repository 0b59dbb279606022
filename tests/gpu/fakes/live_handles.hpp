// SPDX-License-Identifier: Apache-2.0
// The live handles of a stand-in for a driver. Thread-safe.
#pragma once

#include <cstddef>
#include <mutex>
#include <set>

namespace tutti::fakes {

class live_handles {
 public:
  template <class T>
  T* add(T* handle) {
    const std::lock_guard lock(mutex_);
    live_.insert(handle);
    return handle;
  }
  bool remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return live_.erase(handle) == 1;
  }
  bool knows(const void* handle) {
    const std::lock_guard lock(mutex_);
    return live_.count(handle) == 1;
  }
  bool forgot(const void* handle) {
    const std::lock_guard lock(mutex_);
    return forgotten_.count(handle) == 1;
  }
  // Forgets all handles and returns their number. Threads may still be in calls with them.
  std::size_t clear() {
    const std::lock_guard lock(mutex_);
    const std::size_t left = live_.size();
    forgotten_.merge(live_);
    live_.clear();
    return left;
  }

 private:
  std::mutex mutex_;
  std::set<const void*> live_, forgotten_;
};

}  // namespace tutti::fakes
