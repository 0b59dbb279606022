// SPDX-License-Identifier: Apache-2.0
// executor_part: the part of an operation that an executor beside the runtime carries out. The operation stays one of
// its communicator: the runtime checks, orders, times, records and explains it, and tells other ranks of its failure.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/version.hpp>
#include <tutti/status.hpp>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::comm {
class communicator_state;
}
namespace tutti::detail {
class operation_state;
}

namespace tutti {
template <class T>
class task;
}

namespace tutti::extend::inline v1 {

struct call;
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

// An operation in progress, as its executor sees it (tutti/operation.hpp). The executor reads what() and has_deadline(),
// sets the result by set_result() or fail(), and, for a stream_part, calls complete(). All of it on the loop thread.
using detail::operation_state;

// The extra part of a call: what it keeps alive, and checks of its arguments. Allocated from recycled memory.
class call_part {
 public:
  // `executes`: the part carries out the operation, and is an executor_part or a stream_part.
  explicit call_part(bool executes) noexcept : executes_(executes) {}
  virtual ~call_part() = default;
  bool executes() const noexcept { return executes_; }
  // Says why the call is invalid; empty if it is valid. Called before the operation starts.
  virtual std::string bad_argument(const call&) const { return {}; }
  static void* operator new(std::size_t bytes) { return detail::allocate_frame(bytes); }
  static void operator delete(void* part, std::size_t bytes) noexcept { detail::release_frame(part, bytes); }

 private:
  friend void add_reference(call_part& part) noexcept;
  friend void release_reference(call_part& part) noexcept;
  std::atomic<int> references_{0};
  const bool executes_;
};

// Carries out an operation of a communicator. For a collective the runtime runs a barrier beside it, whose frames carry
// the fingerprint of the call: ranks that disagree are told so, whatever the executor does.
class executor_part : public call_part {
 public:
  executor_part() noexcept : call_part(true) {}
  // Carries out the operation. Called once, in the order in which operations start.
  // Completes: when the executor has finished with the buffers.
  // Errors: an exception fails the operation. If that is a collective, it fails the communicator on all ranks.
  // Cancellation: destroying the frame ends the operation; the executor then keeps alive what it still uses.
  virtual task<void> execute(operation_state& op) = 0;
  // Makes an equal part for another operation beside this one.
  virtual part_ref again() const = 0;
};

// Carries out an operation of family::stream, which has no communicator: the runtime passes calls of operation_state
// on. The executor places its state in op.running_storage(), of at most operation_state::running_bytes, and names it by
// op.set_running(). It completes the operation by op.set_running(nullptr), then op.complete().
class stream_part : public call_part {
 public:
  stream_part() noexcept : call_part(true) {}
  // Starts the operation. Returns true if it has completed already; complete() is then not called.
  virtual bool start(operation_state& op) = 0;
  // Asks the operation to end early, with this reason. It still completes.
  virtual void stop(operation_state& op, errc why, const std::string& text) noexcept = 0;
  // Destroys the state at `running`. The operation does not complete.
  virtual void abandon(void* running) noexcept = 0;
  // The loop that operations of the stream complete on.
  virtual boost::asio::io_context::executor_type executor() const noexcept = 0;
};

// A queue of work of an executor, which operations may follow: base of the handles that programs pass as last argument.
class stream {
 public:
  virtual ~stream() = default;
  // Makes the part of an operation that accesses its buffers after the work now in this stream. `in` and `out` own the
  // memory of the buffers, or are null; the part keeps them until its executor has finished.
  virtual part_ref part_of(std::shared_ptr<const void> in, std::shared_ptr<const void> out = {}) const = 0;

 protected:
  stream() noexcept = default;
  stream(const stream&) noexcept = default;
  stream& operator=(const stream&) noexcept = default;
};

// The last argument of operations on memory of an executor: the stream that the operation follows, and the call site.
struct on_stream {
  on_stream(const stream& s, call_site w = call_site::current()) noexcept : after(s), where(w) {}
  on_stream(call_site) = delete;  // memory of a device needs a stream: name it last
  const stream& after;            // needed until the operation is made
  call_site where;
};

// The last argument of operations that may follow a stream: on tensors, and without a buffer.
struct maybe_on_stream {
  maybe_on_stream(call_site w) noexcept : where(w) {}
  maybe_on_stream(const stream& s, call_site w = call_site::current()) noexcept : where(w), after(&s) {}
  call_site where;
  const stream* after = nullptr;  // until the operation is made
};

// Handles of streams.
template <class S>
concept Stream = std::is_convertible_v<const S&, const stream&>;

}  // namespace tutti::extend::inline v1
