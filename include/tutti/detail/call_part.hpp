// SPDX-License-Identifier: Apache-2.0
// What calls have beside those on memory of the host that the program keeps: of memory of devices, of tensors. And what
// tutti::gpu keeps with communicators.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/error.hpp>
#include <tutti/status.hpp>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

class communicator;
template <class T>
class task;
namespace gpu {
class stream;
}

namespace detail {

struct call;
class communicator_ref;
class call_part;
class operation_state;

// Counted. One word, which costs calls on memory of the host a comparison.
class part_ref {
 public:
  part_ref() noexcept = default;
  explicit part_ref(call_part* owned) noexcept : part_(owned) {}
  part_ref(const part_ref& other) noexcept : part_(other.part_) {
    if (part_ != nullptr) add_reference(*part_);
  }
  part_ref(part_ref&& other) noexcept : part_(std::exchange(other.part_, nullptr)) {}
  part_ref& operator=(part_ref other) noexcept {
    std::swap(part_, other.part_);
    return *this;
  }
  ~part_ref() {
    if (part_ != nullptr) release_reference(*part_);
  }
  call_part* get() const noexcept { return part_; }
  explicit operator bool() const noexcept { return part_ != nullptr; }

 private:
  static void add_reference(call_part& part) noexcept;
  static void release_reference(call_part& part) noexcept;
  call_part* part_ = nullptr;
};

// Of a call on memory of a device: the stream that it comes after, and what carries it out. Of one on tensors: the
// tensors, which it keeps.
class call_part {
 public:
  explicit call_part(bool on_device = true) noexcept : on_device_(on_device) {}
  virtual ~call_part() = default;
  bool on_device() const noexcept { return on_device_; }
  // Why the call is invalid, or empty.
  virtual std::string bad_argument(const call&) const { return {}; }
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* part, std::size_t bytes) noexcept { release_frame(part, bytes); }

 private:
  friend class part_ref;
  std::atomic<int> references_{1};
  const bool on_device_;
};

// Of a call of a communicator.
class communicator_part : public call_part {
 public:
  // Carries the operation out: done when the device has passed it. Destroying the frame ends it.
  virtual task<void> execute(operation_state& op) = 0;
  // For another operation that runs beside this one.
  virtual part_ref again() const = 0;
};

// Of a call of family::stream, which has no communicator.
class stream_part : public call_part {
 public:
  // As operation_state has them.
  virtual bool start(operation_state& op) = 0;
  virtual void stop(operation_state& op, errc why, const std::string& text) noexcept = 0;
  virtual void abandon(void* running) noexcept = 0;
  virtual boost::asio::io_context::executor_type executor() const noexcept = 0;
};

// The last argument of operations on memory of devices: the stream that the operation comes after, and the place
// that it is called from.
struct on_stream {
  on_stream(const gpu::stream& s, call_site w = call_site::current()) noexcept : after(s), where(w) {}
  on_stream(call_site) = delete;  // memory of a device needs a stream: name it last
  const gpu::stream& after;       // until the operation is made
  call_site where;
};

// gpu::stream and what derives from it.
template <class S>
concept Stream = std::is_convertible_v<const S&, on_stream>;

template <class B>
using origin_of = std::conditional_t<device_memory<B>, on_stream, call_site>;

inline call_site place_of(const call_site& where) noexcept { return where; }
inline call_site place_of(const on_stream& from) noexcept { return from.where; }

// What tutti::gpu keeps with a communicator until its last handle goes, and with a world until the last of its
// communicators goes; either until the runtime ends.
class device_side {
 public:
  virtual ~device_side() = default;
};
// Of a communicator that is not empty.
std::shared_ptr<device_side>& device_side_of(const communicator& c) noexcept;
std::shared_ptr<device_side>& device_side_of_world(const communicator& c) noexcept;

// What is behind the handle, also an empty one: for calls that are not made by its verbs.
communicator_ref reference_to(const communicator& c) noexcept;

// Which communicator it is: the same on all its ranks, different for all others.
struct communicator_number {
  std::uint64_t world = 0;
  std::uint32_t within = 0;
};
communicator_number number_of(const communicator& c) noexcept;
const std::vector<int>& world_ranks_of(const communicator& c) noexcept;

// Fails it on all ranks.
void fail(const communicator& c, errc why, const std::string& text) noexcept;
// errc::success: it has not failed.
struct communicator_failure {
  errc why = errc::success;
  std::string text;
};
communicator_failure failure_of(const communicator& c);

// A communicator of the same ranks for the library's own messages, made without a word to the others. It fails with
// `c`. `which`: 0 to 6; each once, the same on all ranks.
communicator beside(const communicator& c, int which);
// The one that announces messages of devices: a receive that ends in vain looks there for what it might have meant.
inline constexpr int beside_announcements = 1;

}  // namespace detail
}  // namespace tutti
