// SPDX-License-Identifier: Apache-2.0
// Memory and events of one device that several processes use.
#pragma once

#include <array>
#include <cstddef>

namespace tutti::gpu::detail {

// By which another process of this host opens it.
struct shared_name {
  std::array<std::byte, 96> bytes{};
};

// Of drivers that can. What fails throws tutti::error.
class process_sharing {
 public:
  // `start` is that of an allocation of this process, which frees it when all others have closed it.
  virtual shared_name name_memory(void* start) = 0;
  virtual void* open_memory(const shared_name& of) = 0;  // of another process
  virtual void close_memory(void* opened) noexcept = 0;  // when nothing uses it any more
  // False: there are none; each process waits until its device has done something before it says so.
  virtual bool has_events() const noexcept = 0;
  // Recorded and waited for on both sides, destroyed by driver::destroy_event. A wait means the record that
  // was made last, by whichever process: it comes after a message that says so.
  virtual void* make_shared_event(shared_name& name) = 0;
  virtual void* open_event(const shared_name& of) = 0;

 protected:
  ~process_sharing() = default;
};

}  // namespace tutti::gpu::detail
