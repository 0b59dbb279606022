// SPDX-License-Identifier: Apache-2.0
// The extra data of calls on device memory and on tensors, and what tutti::gpu attaches to communicators.
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

namespace tutti::comm {
class communicator_state;
}

namespace tutti {

class communicator;
template <class T>
class task;

namespace detail {

class call_part;
void add_reference(call_part& part) noexcept;
void release_reference(call_part& part) noexcept;
void add_reference(comm::communicator_state& state) noexcept;
void release_reference(comm::communicator_state& state) noexcept;

// A counted reference to one of these. It has the size of a pointer.
template <class T>
class counted_ref {
 public:
  counted_ref() noexcept = default;
  explicit counted_ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) add_reference(*object_);
  }
  counted_ref(const counted_ref& other) noexcept : counted_ref(other.object_) {}
  counted_ref(counted_ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  counted_ref& operator=(counted_ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~counted_ref() {
    if (object_ != nullptr) release_reference(*object_);
  }
  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

// The state that all handles of one communicator share on this rank.
using communicator_ref = counted_ref<comm::communicator_state>;
// Calls on host memory pay one comparison for it.
using part_ref = counted_ref<call_part>;

}  // namespace detail

namespace gpu {
class stream;
// The device part of an operation that follows `after`, on memory that `in` and `out` keep; of tutti::gpu.
tutti::detail::part_ref device_part_of(const stream& after, std::shared_ptr<const void> in,
                                       std::shared_ptr<const void> out);
}  // namespace gpu

namespace detail {

struct call;
class operation_state;

// The extra part of a call. For device memory: the stream that the operation follows, and the code that
// carries it out. For tensors: the tensors, which it keeps alive.
class call_part {
 public:
  explicit call_part(bool on_device = true) noexcept : on_device_(on_device) {}
  virtual ~call_part() = default;
  bool on_device() const noexcept { return on_device_; }
  // Says why the call is invalid; empty if it is valid.
  virtual std::string bad_argument(const call&) const { return {}; }
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* part, std::size_t bytes) noexcept { release_frame(part, bytes); }

 private:
  friend void add_reference(call_part& part) noexcept;
  friend void release_reference(call_part& part) noexcept;
  std::atomic<int> references_{0};
  const bool on_device_;
};

// The part of a call on a communicator.
class communicator_part : public call_part {
 public:
  // Carries out the operation. Completes when the device has finished it. Destroying the frame ends it.
  virtual task<void> execute(operation_state& op) = 0;
  // Makes an equal part for another operation beside this one.
  virtual part_ref again() const = 0;
};

// The part of a call of family::stream, which has no communicator.
class stream_part : public call_part {
 public:
  // The functions of the same names of operation_state call these.
  virtual bool start(operation_state& op) = 0;
  virtual void stop(operation_state& op, errc why, const std::string& text) noexcept = 0;
  virtual void abandon(void* running) noexcept = 0;
  virtual boost::asio::io_context::executor_type executor() const noexcept = 0;
};

// The last argument of operations on device memory: the stream that the operation follows, and the call site.
struct on_stream {
  on_stream(const gpu::stream& s, call_site w = call_site::current()) noexcept : after(s), where(w) {}
  on_stream(call_site) = delete;  // memory of a device needs a stream: name it last
  const gpu::stream& after;       // needed until the operation is made
  call_site where;
};

// gpu::stream and types derived from it.
template <class S>
concept Stream = std::is_convertible_v<const S&, on_stream>;

// The last argument of operations that may follow a stream: on tensors, and without a buffer.
struct maybe_on_stream {
  maybe_on_stream(call_site w) noexcept : where(w) {}
  template <Stream S>
  maybe_on_stream(const S& s, call_site w = call_site::current()) noexcept
      : where(w), after(&static_cast<const gpu::stream&>(s)), part(gpu::device_part_of) {}
  call_site where;
  const gpu::stream* after = nullptr;  // until the operation is made
  // Only where there is a stream: other programs do not link the library tutti::gpu.
  decltype(&gpu::device_part_of) part = nullptr;
};

template <class B>
using origin_of = std::conditional_t<device_memory<B>, on_stream,
                                     std::conditional_t<tensor<B>, maybe_on_stream, call_site>>;

inline call_site place_of(const call_site& where) noexcept { return where; }
inline call_site place_of(const on_stream& from) noexcept { return from.where; }
inline call_site place_of(const maybe_on_stream& from) noexcept { return from.where; }

// What tutti::gpu attaches to a communicator or a world, and lives as long as that.
class device_side {
 public:
  virtual ~device_side() = default;
};
// Requires a communicator that is not empty.
std::shared_ptr<device_side>& device_side_of(const communicator& c) noexcept;
std::shared_ptr<device_side>& device_side_of_world(const communicator& c) noexcept;

// The state behind a handle, also behind an empty one: for calls not made by its member functions.
communicator_ref reference_to(const communicator& c) noexcept;

// Identifies a communicator: the same on all its ranks, different from all others.
struct communicator_number {
  std::uint64_t world = 0;
  std::uint32_t within = 0;
};
communicator_number number_of(const communicator& c) noexcept;
const std::vector<int>& world_ranks_of(const communicator& c) noexcept;

// Fails the communicator on all ranks.
void fail(const communicator& c, errc why, const std::string& text) noexcept;
// Why a communicator has failed; errc::success if it has not.
struct communicator_failure {
  errc why = errc::success;
  std::string text;
};
communicator_failure failure_of(const communicator& c);

// Makes a communicator of the same ranks for the library's own messages, without communication. It fails
// together with `c`. `which` is 0 to 6; use each number once, the same on all ranks.
communicator beside(const communicator& c, int which);
// The one for the rts headers of messages from devices. A receive that times out searches it for its message.
inline constexpr int beside_rts = 1;

}  // namespace detail
}  // namespace tutti
