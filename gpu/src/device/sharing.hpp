// SPDX-License-Identifier: Apache-2.0
// Memory and events of a device that several processes share.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tutti::gpu::detail {

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

}  // namespace tutti::gpu::detail
