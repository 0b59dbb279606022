// SPDX-License-Identifier: Apache-2.0
// The interface of a kind of device: emulated, CUDA or Level Zero. Code above it does not know the kind.
//
// Handles are opaque pointers of the driver. Only wait_until(), allocate() and free() may wait for the
// device. Errors are tutti::error: errc::device_failed if the device or its context is lost, other codes if
// only the call fails.
#pragma once

#include <tutti/extend/support.hpp>
#include <tutti/gpu/device.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::gpu::kernels {
struct arguments;
struct kernel;
}  // namespace tutti::gpu::kernels

namespace tutti::gpu::impl {

// A word in host memory that streams write and wait for. Values only grow.
struct word {
  std::atomic<std::uint64_t>* value = nullptr;
  void* handle = nullptr;  // of the driver
};

// Wakes a loop from any thread. May outlive the loop.
class doorbell_handle {
 public:
  explicit doorbell_handle(int descriptor) noexcept;  // duplicates it
  doorbell_handle(const doorbell_handle&) = delete;
  doorbell_handle& operator=(const doorbell_handle&) = delete;
  ~doorbell_handle();
  void notify() const noexcept;

 private:
  int fd_;
};

// Another process of this host opens memory or an event by it: the bytes of a driver's own description.
struct shared_name {
  shared_name() = default;
  template <class T>
  explicit shared_name(const T& description) noexcept {
    static_assert(sizeof description <= sizeof bytes && std::is_trivially_copyable_v<T>);
    std::memcpy(bytes.data(), &description, sizeof description);
  }
  template <class T>
  T as() const noexcept {
    T description;
    std::memcpy(&description, bytes.data(), sizeof description);
    return description;
  }
  std::array<std::byte, 96> bytes{};
};

// For drivers that can share. Failures throw tutti::error.
class process_sharing {
 public:
  // `start` begins an allocation of this process, which frees it only after all others have closed it.
  virtual shared_name name_memory(void* start) = 0;
  virtual void* open_memory(const shared_name& of) = 0;  // of another process
  virtual void close_memory(void* opened) noexcept = 0;  // once nothing uses it
  // If false, each process waits for its device before it tells others that the device has finished.
  virtual bool has_events() const noexcept = 0;
  // Only with events. Both processes record an event and wait for it; driver::destroy_event destroys it. A
  // wait refers to the last record by any process, so it must follow a message that announces the record.
  virtual void* make_shared_event(shared_name&) { return nullptr; }
  virtual void* open_event(const shared_name&) { return nullptr; }

 protected:
  ~process_sharing() = default;
};

class driver {
 public:
  virtual ~driver() = default;

  const std::string& name() const noexcept { return name_; }
  int ordinal() const noexcept { return ordinal_; }
  // Identifies the physical device: equal for all its drivers, in this and other processes of the host.
  const std::string& identity() const noexcept { return identity_; }
  const capabilities& can() const noexcept { return can_; }
  virtual memory_info describe(const void* memory) const noexcept = 0;

  virtual void* allocate(std::size_t bytes, memory_kind kind) = 0;
  virtual void free(void* memory, memory_kind kind) noexcept = 0;
  // Calls f(), which frees so much memory of the device by other means, as free() does: on which thread and when.
  virtual void free_by(std::size_t /* bytes */, std::function<void()> f) noexcept { f(); }
  // Pins existing host memory. Returns false if that is impossible.
  virtual bool pin(void*, std::size_t) noexcept { return false; }
  virtual void unpin(void*) noexcept {}

  virtual void* make_stream(bool urgent) = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  virtual void* make_event() = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  virtual word make_word() = 0;
  virtual void destroy_word(word w) noexcept = 0;

  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  virtual void fill(void* to, std::byte value, std::size_t bytes, void* stream) = 0;
  virtual void record(void* event, void* stream) = 0;
  virtual void wait(void* stream, void* event) = 0;
  // Whether streams of this device can wait for events of `other`.
  virtual bool can_wait_for(const driver& other) const noexcept { return this == &other; }
  virtual void write(void* stream, const word& w, std::uint64_t value) = 0;
  virtual void wait(void* stream, const word& w, std::uint64_t at_least) = 0;
  // Called after the host has changed the word, for drivers that do not notice.
  virtual void changed(const word&) noexcept {}
  // Launches a kernel; null, and kernels that the device lacks: returns false. One launch reduces a block of
  // all ranks and gives it to all of them.
  virtual bool launch(const kernels::kernel*, const kernels::arguments&, void* /* stream */) { return false; }

  // Whether the event has passed. Throws if it never will.
  virtual bool query(void* event) = 0;
  // Why the device is lost, asked through this stream; empty while it is not.
  virtual std::optional<std::string> loss(void* stream) = 0;
  virtual bool capturing(void* /* stream */) noexcept { return false; }
  // Notifies `b` when the event, recorded in `stream`, has passed. Returns false if that is impossible.
  virtual bool arm(void* /* event */, void* /* stream */, const std::shared_ptr<const doorbell_handle>&) {
    return false;
  }
  // Blocks until has_passed(), which asks for work in `stream` (returns true), the device has failed, or the time is
  // over.
  template <class Passed>
  bool wait_until(const Passed& has_passed, void* stream, std::chrono::milliseconds longest) noexcept;

  // Null if other processes cannot use the device's memory.
  virtual process_sharing* sharing() noexcept { return nullptr; }

  // Counted, on any thread: no memory is freed while this is on. For work that waits for other ranks, because freeing
  // would wait for it.
  virtual void hold_frees(bool) noexcept {}
  // The same for closed gates. While free_long() calls f, no gate may close: waits for a second at most, and then returns
  // false.
  virtual bool close_gate() noexcept { return true; }
  virtual void open_gate() noexcept {}
  // Calls f(), which frees memory and may take long, on this thread, which is none of a loop. First it waits until
  // all gates are open, and at most `patience` for work that waits for other ranks.
  virtual void free_long(const std::function<void()>& f, std::chrono::milliseconds /* patience */) { f(); }
  // Whether work that would hold frees has to wait for a moment: because memory has waited long, for at most a fifth of
  // the time, or because free_long() calls f, for at most a second.
  virtual bool frees_first() const noexcept { return false; }

  // Called by a thread beside the loop before it uses this driver, or a library on its device.
  virtual void enter_thread() noexcept {}

 protected:
  explicit driver(int n) noexcept : ordinal_(n) {}
  const int ordinal_;
  // Set by the constructor of the derived class.
  std::string name_, identity_;
  capabilities can_;
};

// A failed device notifies nobody, so whoever waits asks.
inline constexpr auto between_health_checks = std::chrono::milliseconds(100);

template <class Passed>
bool driver::wait_until(const Passed& has_passed, void* stream, std::chrono::milliseconds longest) noexcept {
  using clock = std::chrono::steady_clock;
  const auto until = clock::now() + longest;
  auto health_at = clock::now() + between_health_checks;
  try {
    while (!has_passed()) {
      const auto now = clock::now();
      if (now >= until || (now >= health_at && loss(stream))) return false;
      if (now >= health_at) health_at = now + between_health_checks;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Words in pinned memory of a driver. Thread-safe: gates may be destroyed on any thread.
class word_pool {
 public:
  // Lends a word, which is zero.
  std::atomic<std::uint64_t>* take(driver& of) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) {
      auto* const page = static_cast<line*>(of.allocate(lines_per_page * sizeof(line), memory_kind::pinned));
      pages_.push_back(page);
      for (std::size_t i = 0; i < lines_per_page; ++i) spare_.push_back(&(new (page + i) line)->value);
    }
    std::atomic<std::uint64_t>* const taken = spare_.back();
    spare_.pop_back();
    taken->store(0, std::memory_order_release);
    return taken;
  }
  void give_back(std::atomic<std::uint64_t>* w) noexcept {
    const std::lock_guard lock(mutex_);
    spare_.push_back(w);
  }
  void free_pages(driver& of) noexcept {
    for (void* page : pages_) of.free(page, memory_kind::pinned);
  }

 private:
  // The device writes one word while the host polls another.
  struct alignas(64) line {
    std::atomic<std::uint64_t> value{0};
  };
  static constexpr std::size_t lines_per_page = 64;
  std::mutex mutex_;
  std::vector<void*> pages_;
  std::vector<std::atomic<std::uint64_t>*> spare_;
};

// Returns the object of `place`, which it makes of `arguments` if there is none.
template <class T, class... A>
std::shared_ptr<T> lock_or_make(std::weak_ptr<T>& place, A&&... arguments) {
  std::shared_ptr<T> found = place.lock();
  if (!found) place = found = std::make_shared<T>(std::forward<A>(arguments)...);
  return found;
}

// Calls a function when its scope ends, in whatever way.
template <class F>
class scope_exit {
 public:
  explicit scope_exit(F f) noexcept : f_(std::move(f)) {}
  scope_exit(const scope_exit&) = delete;
  scope_exit& operator=(const scope_exit&) = delete;
  ~scope_exit() { f_(); }

 private:
  F f_;
};

// Holds the frees of a driver until it is destroyed, or released on any thread.
class frees_hold {
 public:
  explicit frees_hold(std::shared_ptr<driver> of) : of_(std::move(of)) { of_->hold_frees(true); }
  frees_hold(const frees_hold&) = delete;
  frees_hold& operator=(const frees_hold&) = delete;
  ~frees_hold() { release(); }
  void release() noexcept {
    if (holds_.exchange(false)) of_->hold_frees(false);
  }

 private:
  const std::shared_ptr<driver> of_;
  std::atomic<bool> holds_{true};
};

}  // namespace tutti::gpu::impl
