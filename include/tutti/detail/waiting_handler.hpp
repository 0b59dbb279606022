// SPDX-License-Identifier: Apache-2.0
// The completion handlers and tasks of this thread that end with their runtime.
#pragma once

#include <tutti/detail/asio_config.hpp>

#include <boost/asio/io_context.hpp>

namespace tutti::detail {

namespace asio = boost::asio;

class operation_state;

// The signature of a handler that gets the First of an outcome, and then a T unless that is void.
template <class First, class T>
struct handler_signature {
  using type = void(First, T);
};
template <class First>
struct handler_signature<First, void> {
  using type = void(First);
};

// A handler that waits for an operation, or a task that was started by a token. If the runtime ends first, it
// is destroyed and the handler not called, as Asio does when an io_context is destroyed.
class waiting_handler {
 public:
  waiting_handler(const waiting_handler&) = delete;
  waiting_handler& operator=(const waiting_handler&) = delete;

 protected:
  using discarder = void (*)(waiting_handler&) noexcept;
  // `of` is null for a task.
  waiting_handler(const operation_state* of, discarder discard) noexcept : of_(of), discard_(discard) {}
  ~waiting_handler();
  // Call it on the loop thread while the operation or task has not ended; for a task, with its io_context.
  void join(const asio::io_context* loop = nullptr) noexcept;

 private:
  friend void discard_handlers(const asio::io_context* ended) noexcept;
  friend void end_tasks(const asio::io_context& of) noexcept;
  friend void discard_ended_tasks() noexcept;
  template <class Ended>
  static void discard_all(Ended ended) noexcept;
  const operation_state* const of_;
  const discarder discard_;
  const asio::io_context* loop_ = nullptr;  // of a task that has not been ended
  waiting_handler* next_ = nullptr;
  waiting_handler* previous_ = nullptr;
  bool joined_ = false;
};

// Destroys the handlers of this thread that wait for operations of detached communicators, or of streams of
// the io_context `ended`, which may be null.
void discard_handlers(const asio::io_context* ended) noexcept;
// Marks the tasks of this thread that were started by a token on this io_context.
void end_tasks(const asio::io_context& of) noexcept;
// Destroys the marked tasks. Call it with no coroutine on the stack.
void discard_ended_tasks() noexcept;

}  // namespace tutti::detail
