// SPDX-License-Identifier: Apache-2.0
// The completion handlers and tasks of this thread that end with their runtime.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <tuple>
#include <utility>

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
class waiting_handler : list_member<waiting_handler> {
 public:
  virtual ~waiting_handler() = default;

 protected:
  // `of` is null for a task.
  explicit waiting_handler(const operation_state* of) noexcept : of_(of) {}
  // Call it on the loop thread while the operation or task has not ended; for a task, with its io_context.
  void join(const asio::io_context* loop = nullptr) noexcept;

 private:
  friend class list_member<waiting_handler>;
  friend void discard_handlers(const asio::io_context* ended) noexcept;
  friend void end_tasks(const asio::io_context& of) noexcept;
  friend void discard_ended_tasks() noexcept;
  template <class Ended>
  static void discard_all(Ended ended) noexcept;
  virtual void discard() noexcept = 0;  // destroys the handler or task, and this
  const operation_state* const of_;
  const asio::io_context* loop_ = nullptr;  // of a task that has not been ended
};

// Lets the cancellation slot of a handler end what the handler waits for, until this is cleared or destroyed.
template <class Handler>
class slot_connection {
 public:
  explicit slot_connection(const Handler& handler) noexcept
      : slot_(asio::get_associated_cancellation_slot(handler)) {}
  slot_connection(const slot_connection&) = delete;
  ~slot_connection() { clear(); }

  template <class End>
  void connect(End end) {
    if (!slot_.is_connected()) return;
    slot_.assign([end](asio::cancellation_type type) {
      if (type != asio::cancellation_type::none) end();
    });
  }
  void clear() noexcept {
    if (slot_.is_connected()) slot_.clear();
  }

 private:
  asio::associated_cancellation_slot_t<Handler> slot_;
};

// Posts a call of the handler with these arguments.
template <class Executor, class Handler, class... Arguments>
void post_call(const Executor& executor, Handler handler, std::tuple<Arguments...> arguments) {
  asio::post(executor, [h = std::move(handler), all = std::move(arguments)]() mutable {
    std::apply(std::move(h), std::move(all));
  });
}

// Destroys the handlers of this thread that wait for operations of detached communicators, or streams of `ended`.
void discard_handlers(const asio::io_context* ended) noexcept;
// Marks the tasks of this thread that were started by a token on this io_context.
void end_tasks(const asio::io_context& of) noexcept;
// Destroys the marked tasks. Call it with no coroutine on the stack.
void discard_ended_tasks() noexcept;

}  // namespace tutti::detail
