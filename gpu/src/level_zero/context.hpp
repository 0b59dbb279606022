// SPDX-License-Identifier: Apache-2.0
// A Level Zero device as this process uses it: context, events, streams, and the thread that watches events
// for sleeping loops. Shared by all loops of the process.
//
// A Level Zero event is signalled once, and may be reset only when nothing waits for it. So each record of a
// stream is a moment with its own event. The event returns to the store once the device has passed all that
// refers to it: a wait is over when the next moment of its stream has passed.
//
// Streams are immediate command lists. Lists of drivers before 1.7 do not keep the order of their commands;
// barriers do.
#pragma once

#include "device/driver.hpp"
#include "level_zero/level_zero_api.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

class shared_context {
 public:
  shared_context(const abi::table& calls, int ordinal);
  shared_context(const shared_context&) = delete;
  shared_context& operator=(const shared_context&) = delete;
  ~shared_context();

  // An event of detail::driver: the moment recorded last; null if there is none.
  struct mark {
    std::shared_ptr<moment> latest;
  };
  struct gate {
    std::atomic<std::uint64_t>* value = nullptr;
    std::shared_ptr<moment> opened;
  };

  abi::list* make_list(bool urgent);
  void destroy_list(abi::list* l) noexcept;  // commands in it still run
  void copy(void* to, const void* from, std::size_t bytes, abi::list* in);
  void fill(void* to, unsigned char value, std::size_t bytes, abi::list* in);
  void launch(abi::kernel* kernel, abi::group_count groups, std::uint32_t group_size, void** arguments,
              const std::size_t* sizes, std::size_t count, abi::list* in);
  void record(mark& m, abi::list* in);
  void wait(const mark& m, abi::list* in);
  void wait(const gate& g, abi::list* in);
  void open(const gate& g, abi::list* in);  // when the list gets to it
  void order(abi::list* in);                // later commands run after earlier ones
  gate make_gate();
  void destroy_gate(gate g) noexcept;

  abi::result query(const mark& m) noexcept;
  abi::result health(abi::list* of) noexcept;
  // Notifies when `m` has passed or the device is lost.
  void watch(const mark& m, std::shared_ptr<const gpu::detail::doorbell_handle> b);
  // Blocks until the list has passed its commands (returns true), the device is lost, or the time is over.
  bool synchronize(abi::list* l, std::chrono::milliseconds longest) noexcept;

  void* allocate(std::size_t bytes, gpu::memory_kind kind);  // throws tutti::error
  void free(void* memory) noexcept { calls.free(context, memory); }
  gpu::memory_info describe(const void* memory) const noexcept;
  void check(abi::result code, const char* what) const;

  const abi::table& calls;
  const int ordinal;
  abi::driver* driver = nullptr;
  abi::device* device = nullptr;
  abi::context* context = nullptr;
  std::string name;
  std::string identity;
  bool shares_memory = false;  // with other processes

 private:
  struct stream {
    bool in_order = false;
    bool has_last_moment = false;                     // behind all commands of a destroyed list
    std::deque<std::shared_ptr<moment>> pending;      // recorded, not known to have passed
    std::vector<std::shared_ptr<moment>> waited_for;  // since the last record
  };
  struct watched {
    std::shared_ptr<moment> until;
    std::shared_ptr<const gpu::detail::doorbell_handle> doorbell;
  };

  void before_command(abi::list* in);
  std::shared_ptr<moment> append_moment(abi::list* in);
  void append(const std::shared_ptr<moment>& m, abi::list* in, stream& s);
  void append_wait(const std::shared_ptr<moment>& m, abi::list* in);
  std::shared_ptr<moment> take_moment();
  void sweep() noexcept;
  static void forget_passed(const abi::table& calls, stream& s) noexcept;
  void watch_loop() noexcept;

  std::uint32_t group_ = 0;  // of queues for kernels and copies
  std::uint32_t group_queues_ = 1;
  std::uint32_t next_queue_ = 0;
  bool in_order_ = false;  // the driver's lists keep the order
  std::shared_ptr<event_store> events_;
  std::mutex mutex_;  // lists are not thread-safe
  std::map<abi::list*, stream> streams_;
  std::vector<std::pair<abi::list*, stream>> ending_;  // destroyed, still running
  std::uint64_t* one_ = nullptr;                       // the value that opens gates
  std::vector<void*> gate_pages_;
  std::vector<std::atomic<std::uint64_t>*> spare_gates_;

  std::mutex watch_mutex_;
  std::condition_variable watch_changed_;
  std::vector<watched> watched_;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace tutti::level_zero
