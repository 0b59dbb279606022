// SPDX-License-Identifier: Apache-2.0
// Parts of the driver of a Level Zero GPU: checked calls, its events, and sharing with other processes.
#pragma once

#include "device/driver.hpp"
#include "level_zero/level_zero_api.hpp"

#include <memory>
#include <mutex>
#include <tutti/level_zero.hpp>
#include <vector>

namespace tutti::level_zero {

// One GPU.
struct device_calls {
  const abi::table& calls;
  int number = 0;
  handles native;  // the context is made by the driver

  std::string explain(ze_result_t code) const { return calls.explain(code, native.driver); }
  // Throws tutti::error if the call `what` has failed.
  void check(ze_result_t code, const char* what) const;
};

// A pool of events, which are unsignalled when taken.
class event_store : public std::enable_shared_from_this<event_store> {
 public:
  explicit event_store(const device_calls& of) : of_(of) {}
  event_store(const event_store&) = delete;
  event_store& operator=(const event_store&) = delete;
  ~event_store() {
    for (ze_event_handle_t e : all_) of_.calls.one_at_a_time(of_.calls.zeEventDestroy, e);
    for (ze_event_pool_handle_t p : pools_) of_.calls.one_at_a_time(of_.calls.zeEventPoolDestroy, p);
  }

  struct moment {
    ze_event_handle_t event = nullptr;
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
    const ze_event_handle_t e = spare_.back();
    of_.check(of_.calls.zeEventHostReset(e), "zeEventHostReset");
    spare_.pop_back();
    made->event = e;
    return made;
  }

 private:
  static constexpr std::uint32_t events_per_pool = 64;

  void add_pool() {
    const abi::table& calls = of_.calls;
    auto how = abi::zeroed<ze_event_pool_desc_t>(ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
    how.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
    how.count = events_per_pool;
    ze_event_pool_handle_t pool = nullptr;
    ze_device_handle_t device = of_.native.device;
    of_.check(calls.one_at_a_time(calls.zeEventPoolCreate, of_.native.context, &how, 1U, &device, &pool),
              "zeEventPoolCreate");
    pools_.push_back(pool);
    auto at = abi::zeroed<ze_event_desc_t>(ZE_STRUCTURE_TYPE_EVENT_DESC);
    at.signal = at.wait = ZE_EVENT_SCOPE_FLAG_HOST;
    for (; at.index < events_per_pool; ++at.index) {
      ze_event_handle_t e = nullptr;
      of_.check(calls.one_at_a_time(calls.zeEventCreate, pool, &at, &e), "zeEventCreate");
      all_.push_back(e);
      spare_.push_back(e);
    }
  }

  const device_calls of_;
  mutable std::mutex mutex_;
  std::vector<ze_event_pool_handle_t> pools_;
  std::vector<ze_event_handle_t> all_;
  std::vector<ze_event_handle_t> spare_;
};
using moment = event_store::moment;

// Sharing of a device's memory with other processes.
std::shared_ptr<gpu::detail::process_sharing> make_sharing(const device_calls& of);

}  // namespace tutti::level_zero
