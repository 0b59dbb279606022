// SPDX-License-Identifier: Apache-2.0
// The driver of a Level Zero GPU: context, events, streams, and the thread that watches events for sleeping
// loops. Shared by all loops of the process. tutti has no kernels for it: reductions are staged, or oneCCL does
// them.
//
// A Level Zero event is signalled once, and may be reset only when nothing waits for it. So each record of a
// stream is a moment with its own event. The event returns to the store once the device has passed all that
// refers to it: a wait is over when the next moment of its stream has passed.
//
// Streams are immediate command lists. Lists of drivers before 1.7 do not keep the order of their commands;
// barriers do.
#pragma once

#include "device/driver.hpp"
#include "device/sharing.hpp"
#include "level_zero/level_zero_api.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tutti/level_zero.hpp>
#include <vector>

namespace tutti::level_zero {

// A pool of events, which are unsignalled when taken.
class event_store : public std::enable_shared_from_this<event_store> {
 public:
  event_store(const abi::table& calls, abi::context* in, abi::device* of)
      : calls_(calls), context_(in), device_(of) {}
  event_store(const event_store&) = delete;
  event_store& operator=(const event_store&) = delete;
  ~event_store();

  struct moment {
    abi::event* event = nullptr;
    std::shared_ptr<event_store> home;
    std::vector<std::shared_ptr<moment>> before;  // its stream has waited for these since its last moment
    ~moment();
  };
  std::shared_ptr<moment> take();  // throws tutti::error
  bool is_low() const noexcept;    // take() would create events

 private:
  const abi::table& calls_;
  abi::context* context_;
  abi::device* device_;
  mutable std::mutex mutex_;
  std::vector<abi::event_pool*> pools_;
  std::vector<abi::event*> all_;
  std::vector<abi::event*> spare_;
};
using moment = event_store::moment;

class level_zero_driver final : public gpu::detail::driver, gpu::detail::process_sharing {
 public:
  level_zero_driver(const abi::table& calls, int ordinal);
  level_zero_driver(const level_zero_driver&) = delete;
  level_zero_driver& operator=(const level_zero_driver&) = delete;
  ~level_zero_driver() override;

  std::string name() const override;
  int ordinal() const noexcept override { return ordinal_; }
  std::string identity() const override { return identity_; }
  gpu::capabilities can() const noexcept override;
  gpu::memory_info describe(const void* memory) const noexcept override;
  void* allocate(std::size_t bytes, gpu::memory_kind kind) override;
  void free(void* memory, gpu::memory_kind) noexcept override { calls.free(native.context, memory); }
  // Level Zero 1.4 cannot pin existing memory.
  bool pin(void*, std::size_t) noexcept override { return false; }
  void unpin(void*) noexcept override {}
  void* make_stream(bool urgent) override;
  void destroy_stream(void* stream) noexcept override;  // commands in it still run
  void* make_event() override { return new mark; }
  void destroy_event(void* event) noexcept override { delete static_cast<mark*>(event); }
  // Words serve only as gates: 0, then 1.
  gpu::detail::word make_word() override;
  void destroy_word(gpu::detail::word w) noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override;
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override;
  void record(void* event, void* stream) override;
  void wait(void* stream, void* event) override;
  void write(void* stream, const gpu::detail::word& w, std::uint64_t value) override;
  void wait(void* stream, const gpu::detail::word& w, std::uint64_t at_least) override;
  void changed(const gpu::detail::word& w) noexcept override;
  bool reduce(reduce_kind, element_type, const gpu::kernels::reduce_arguments&, void*) override {
    return false;
  }
  bool convert(element_type, element_type, const gpu::kernels::convert_arguments&, void*) override {
    return false;
  }
  gpu::detail::progress query(void* event, std::string& why) noexcept override;
  gpu::detail::progress health(void* stream, std::string& why) noexcept override;
  bool capturing(void*) noexcept override { return false; }  // Level Zero has no capture
  bool arm(void* event, void* stream, const std::shared_ptr<const gpu::detail::doorbell_handle>& b) override;
  bool synchronize(void* stream, std::chrono::milliseconds longest) noexcept override;
  gpu::detail::process_sharing* sharing() noexcept override { return shares_memory_ ? this : nullptr; }

  void launch(abi::kernel* kernel, abi::group_count groups, std::uint32_t group_size, void** arguments,
              const std::size_t* sizes, std::size_t count, void* stream);
  void order(void* stream);  // later commands run after earlier ones
  void check(abi::result code, const char* what) const;

  const abi::table& calls;
  handles native;

 private:
  // An event of detail::driver: the moment recorded last; null if there is none.
  struct mark {
    std::shared_ptr<moment> latest;
  };
  // A word of detail::driver.
  struct gate {
    std::atomic<std::uint64_t>* value = nullptr;
    std::shared_ptr<moment> opened;
  };
  struct list_state {
    bool in_order = false;
    bool has_last_moment = false;                     // behind all commands of a destroyed list
    std::deque<std::shared_ptr<moment>> pending;      // recorded, not known to have passed
    std::vector<std::shared_ptr<moment>> waited_for;  // since the last record
  };
  struct watched {
    std::shared_ptr<moment> until;
    std::shared_ptr<const gpu::detail::doorbell_handle> doorbell;
  };
  // The descriptor of opened memory, kept while that is open.
  struct descriptor {
    int number = -1;
    std::uint64_t file = 0;
  };

  gpu::detail::shared_name name_memory(void* start) override;
  void* open_memory(const gpu::detail::shared_name& of) override;
  void close_memory(void* opened) noexcept override;
  // A Level Zero event may be reset only when no process waits for it.
  bool has_events() const noexcept override { return false; }

  static mark& mark_of(void* event) noexcept { return *static_cast<mark*>(event); }
  static gate& gate_of(const gpu::detail::word& w) noexcept { return *static_cast<gate*>(w.handle); }
  void before_command(abi::list* in);
  std::shared_ptr<moment> append_moment(abi::list* in);
  void append(const std::shared_ptr<moment>& m, abi::list* in, list_state& s);
  void append_wait(const std::shared_ptr<moment>& m, abi::list* in);
  std::shared_ptr<moment> take_moment();
  void sweep() noexcept;
  void forget_passed(list_state& s) noexcept;
  abi::result status_of(const mark& m) noexcept;
  abi::result health_of(abi::list* l) noexcept;
  void watch_loop() noexcept;

  const int ordinal_;
  std::string name_;
  std::string identity_;
  bool shares_memory_ = false;  // with other processes
  std::uint32_t group_ = 0;     // of queues for kernels and copies
  std::uint32_t group_queues_ = 1;
  std::uint32_t next_queue_ = 0;
  bool in_order_ = false;  // the driver's lists keep the order
  std::shared_ptr<event_store> events_;
  std::mutex mutex_;  // lists are not thread-safe
  std::map<abi::list*, list_state> streams_;
  std::vector<std::pair<abi::list*, list_state>> ending_;  // destroyed, still running
  std::uint64_t* one_ = nullptr;                           // the value that opens gates
  std::vector<void*> gate_pages_;
  std::vector<std::atomic<std::uint64_t>*> spare_gates_;

  std::mutex watch_mutex_;
  std::condition_variable watch_changed_;
  std::vector<watched> watched_;
  bool stopping_ = false;
  std::thread watcher_;

  std::mutex opened_mutex_;
  std::multimap<void*, descriptor> opened_;  // two loops may open the same memory
};

}  // namespace tutti::level_zero
