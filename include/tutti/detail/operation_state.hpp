// SPDX-License-Identifier: Apache-2.0
// The state of one operation, and the functions that start, stop and abandon it.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/sole_owner.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/call.hpp>
#include <tutti/status.hpp>

#include <boost/asio/io_context.hpp>
#include <cassert>
#include <coroutine>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {
class matched_message;
}

namespace tutti::detail {

using tutti::comm::communicator_state;

// The last argument of an operation on a B.
template <class B>
using origin_of = std::conditional_t<device_memory<B>, on_stream,
                                     std::conditional_t<tensor<B>, maybe_on_stream, call_site>>;

inline call_site place_of(const call_site& where) noexcept { return where; }
inline call_site place_of(const on_stream& from) noexcept { return from.where; }
inline call_site place_of(const maybe_on_stream& from) noexcept { return from.where; }

inline bool is_of_stream(const call& what) noexcept { return row_of(what.kind).of == family::stream; }
// Errors: throws errc::invalid_argument for a call of an empty communicator, errc::shut_down for one whose
// runtime has ended. They have no loop to call a handler from.
void require_loop(const call& what);
// Errors: throws errc::invalid_argument for a call that is no collective.
void require_algorithms(const call& what);
inline executor_part& executor_part_of(const call& what) noexcept {
  return static_cast<executor_part&>(*what.part.get());
}
inline stream_part& stream_part_of(const call& what) noexcept {
  return static_cast<stream_part&>(*what.part.get());
}

// One operation from its start to its completion. Not movable once started: the engine holds its address.
class operation_state {
 public:
  using completion = void (*)(operation_state&) noexcept;

  explicit operation_state(call&& what) noexcept : what_(std::move(what)) {}
  explicit operation_state(const call& what) noexcept : what_(what) {}
  template <class... Parts>
  explicit operation_state(std::in_place_t, const Parts&... parts) noexcept : what_(parts...) {}
  operation_state(const operation_state&) = delete;
  operation_state& operator=(const operation_state&) = delete;
  ~operation_state() {
    if (pending()) abandon();
  }

  // Starts the operation. Returns true if it completed at once; `on_complete` is then not called. Otherwise
  // the loop calls `on_complete` once, later: the callee may do anything.
  bool start(completion on_complete, void* owner) noexcept;
  // Asks the operation to end early. It still completes as usual. `text` names the requester.
  void stop(errc why, const std::string& text) noexcept;
  void cancel() noexcept { stop(errc::cancelled, "cancelled"); }
  // Ends the operation without calling `on_complete`. On return the library holds no pointer to the buffers.
  void abandon() noexcept;

  // Whether it was started and has not completed.
  bool pending() const noexcept { return running_ != nullptr || late_; }
  // Gives a pending operation that was started without an owner one. Returns false if it has one.
  bool set_waiter(completion on_complete, void* owner) noexcept {
    if (owner_ != nullptr) return false;
    on_complete_ = on_complete;
    owner_ = owner;
    return true;
  }
  // Takes that back, if it is this owner's.
  void clear_waiter(const void* owner) noexcept {
    if (owner_ != owner) return;
    on_complete_ = &nobody_waits;
    owner_ = nullptr;
  }
  static void nobody_waits(operation_state&) noexcept {}

  const call& what() const noexcept { return what_; }
  // Of an operation that has not been started.
  const call& unused_call() const noexcept {
    assert(on_complete_ == nullptr && "an operation that has been started cannot be moved");
    return what_;
  }
  void* owner() const noexcept { return owner_; }
  errc failure() const noexcept { return failure_; }
  const status& result() const noexcept { return result_; }
  // Takes the result as T: a status, the handle of a new communicator, a window, a signal's value (as the status has
  // it in `bytes`), or a matched message. The handle is empty after a failure, and on a rank that is not a member. The
  // message is empty after a failure. Call it once.
  template <class T>
  T value() {
    if constexpr (std::is_same_v<T, status>) {
      return result_;
    } else if constexpr (std::is_same_v<T, matched_message>) {
      return failure_ == errc::success ? T(what_.comm, result_, std::move(what_.part)) : T();
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return result_.bytes;
    } else if constexpr (std::is_constructible_v<T, const communicator_ref&, const call&>) {
      return T(std::exchange(made_, {}), what_);
    } else {
      return T(std::move(made_));
    }
  }
  const std::string& failure_text() const noexcept { return *text_; }  // where there is a failure
  // Throws tutti::error if the operation failed.
  void rethrow() const {
    if (failure_ != errc::success) throw_failure();
  }
  // The failure as Asio reports it: cancellation is boost::asio::error::operation_aborted.
  boost::system::error_code asio_code() const noexcept;

  // For those that carry it out (extend/executor_part.hpp): storage for their state, and how they report.
  static constexpr std::size_t running_bytes = 320;
  void* running_storage() noexcept { return storage_; }
  void set_running(void* running) noexcept { running_ = running; }
  void* running() const noexcept { return running_; }
  void set_result(const status& result) noexcept { result_ = result; }
  void set_part(part_ref part) noexcept { what_.part = std::move(part); }
  void set_made(communicator_ref made) noexcept { made_ = std::move(made); }
  void fail(errc code, std::string text) noexcept;
  void complete() noexcept {
    if (noted_) forget_notes();
    on_complete_(*this);
  }
  // Whether it waits until its scope's deadline, instead of its communicator's timeout.
  bool has_deadline() const noexcept { return has_deadline_; }
  void set_deadline() noexcept { has_deadline_ = true; }
  // Complete; its completion is queued in the storage of the operation state.
  void set_late(bool late) noexcept { late_ = late; }
  // Releases the device part when the operation has ended: the device's loop may end before this does.
  void release_device() noexcept {
    device_released_ = on_device();
    if (what_.part) what_.part = {};
  }
  // Also when its device part has been released.
  bool on_device() const noexcept { return device_released_ || what_.on_device(); }

 private:
  struct text_destroyer {
    void operator()(std::string* text) const noexcept { delete text; }
  };
  bool start_with_care() noexcept;
  bool begin();
  [[noreturn]] void throw_failure() const;
  void forget_notes() noexcept;

  call what_;
  completion on_complete_ = nullptr;
  void* owner_ = nullptr;
  void* running_ = nullptr;  // null while nothing is pending
  bool late_ = false;
  bool has_deadline_ = false;
  bool device_released_ = false;
  // its buffers are on record (ops/buffer_check.cpp), or a prepared call is marked as in use
  bool noted_ = false;
  errc failure_ = errc::success;
  status result_;
  communicator_ref made_;  // of group, split, duplicate, window and shrink
  sole_owner<std::string*, text_destroyer> text_;
  alignas(16) std::byte storage_[running_bytes];
};

// The completion of an operation whose owner is the coroutine that awaits it.
inline void resume_owner(operation_state& of) noexcept {
  resume_bounded(std::coroutine_handle<>::from_address(of.owner()));
}

// An operation that is awaited within a scope.
class operation_stop : stop_node {
 public:
  explicit operation_stop(operation_state& state) noexcept : state_(state) {}
  // Calls operation_state::start. If the scope is already stopped, a message is not started and ends with the
  // scope's reason. A collective is started and stopped, so that the other ranks learn the reason.
  bool start(stop_scope& scope, operation_state::completion on_complete, void* owner) noexcept;
  operation_state& state() const noexcept { return state_; }

 private:
  void on_stop(const stop_scope& stopped) noexcept override { state_.stop(stopped.why(), stopped.text()); }
  operation_state& state_;
};

// Delivers the completion of `state` in the loop's next turn although it completed at once: Asio calls no handler
// inside its initiation. Returns false, and does nothing, if this is not the thread of its loop.
bool complete_later(operation_state& state) noexcept;
// The executor of the loop.
boost::asio::io_context::executor_type executor_of(const communicator_state& state) noexcept;
boost::asio::io_context::executor_type executor_of(const call& what) noexcept;

}  // namespace tutti::detail
