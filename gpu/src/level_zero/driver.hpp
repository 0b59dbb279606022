// SPDX-License-Identifier: Apache-2.0
// Parts of the driver of a Level Zero GPU: its events, and sharing with other processes.
#pragma once

#include "device/driver.hpp"
#include "level_zero/level_zero_api.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <mutex>
#include <tutti/error.hpp>
#include <tutti/level_zero.hpp>
#include <vector>

namespace tutti::level_zero {

// Whether no call succeeds on the device any more.
inline bool lost(abi::result code) noexcept {
  return code == abi::device_lost || code == abi::device_requires_reset;
}

// A pool of events, which are unsignalled when taken.
class event_store : public std::enable_shared_from_this<event_store> {
 public:
  event_store(const abi::table& calls, const handles& of) : calls_(calls), of_(of) {}
  event_store(const event_store&) = delete;
  event_store& operator=(const event_store&) = delete;
  ~event_store() {
    const std::lock_guard handles(calls_.handles);
    for (abi::event* e : all_) calls_.event_destroy(e);
    for (abi::event_pool* p : pools_) calls_.pool_destroy(p);
  }

  struct moment {
    abi::event* event = nullptr;
    std::shared_ptr<event_store> home;
    std::vector<std::shared_ptr<moment>> before;  // its stream has waited for these since its last moment
    ~moment() {
      if (event == nullptr) return;
      const std::lock_guard lock(home->mutex_);
      home->spare_.push_back(event);
    }
  };

  // Whether take() would create events.
  bool is_low() const noexcept {
    const std::lock_guard lock(mutex_);
    return spare_.empty();
  }

  std::shared_ptr<moment> take() {
    auto made = std::make_shared<moment>();
    made->home = shared_from_this();
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) add_pool();
    abi::event* const e = spare_.back();
    check(calls_.event_reset(e), "zeEventHostReset");
    spare_.pop_back();
    made->event = e;
    return made;
  }

 private:
  static constexpr std::uint32_t events_per_pool = 64;

  void add_pool() {
    const std::lock_guard handles(calls_.handles);
    abi::event_pool_desc of;
    of.count = events_per_pool;
    abi::event_pool* pool = nullptr;
    abi::device* device = of_.device;
    check(calls_.pool_create(of_.context, &of, 1, &device, &pool), "zeEventPoolCreate");
    pools_.push_back(pool);
    for (std::uint32_t i = 0; i < events_per_pool; ++i) {
      abi::event_desc at;
      at.index = i;
      abi::event* e = nullptr;
      check(calls_.event_create(pool, &at, &e), "zeEventCreate");
      all_.push_back(e);
      spare_.push_back(e);
    }
  }
  void check(abi::result code, const char* what) const {
    if (code != abi::success)
      throw error(lost(code) ? errc::device_failed : errc::resources,
                  fmt::format("{}: {}", what, calls_.explain(code)));
  }

  const abi::table& calls_;
  const handles of_;
  mutable std::mutex mutex_;
  std::vector<abi::event_pool*> pools_;
  std::vector<abi::event*> all_;
  std::vector<abi::event*> spare_;
};
using moment = event_store::moment;

// Sharing of a device's memory with other processes. `check` throws if a call has failed.
std::shared_ptr<gpu::detail::process_sharing> make_sharing(
    const abi::table& calls, const handles& of, std::function<void(abi::result, const char*)> check);
// As cuda::make_context.
std::shared_ptr<void> make_context(int ordinal);

// The driver of GPU `ordinal`.
std::shared_ptr<gpu::detail::driver> make_driver(const abi::table& calls, int ordinal);

}  // namespace tutti::level_zero
