// SPDX-License-Identifier: Apache-2.0
// The slots that requests live in, and the adapter from requests to Asio's completion tokens.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/token_face.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <memory>
#include <new>
#include <utility>

namespace tutti::detail {

struct request_slot;
// Starts an operation in a slot from this thread's pool: no heap allocation in steady state.
request_slot* start_request(call&& what);
// Starts a message, constructing its call in the slot.
request_slot* start_request(operation_kind kind, const communicator_ref& comm, const buffer_view& data,
                            int peer, int tag, call_site where);
bool request_done(const request_slot& slot) noexcept;
operation_state& request_state(request_slot& slot) noexcept;
// Sets the function to call once when the operation completes: f(owner). Requires a slot that is not done.
// Returns false if another coroutine already waits.
bool set_request_waiter(request_slot& slot, void (*f)(void*) noexcept, void* owner) noexcept;
// Removes `owner` as the waiter, if it is.
void clear_request_waiter(request_slot& slot, const void* owner) noexcept;
// Cancels a pending operation and returns the slot to the pool. On return the library holds no pointer to the
// buffer.
void drop_request(request_slot* slot) noexcept;
void cancel_request(request_slot& slot) noexcept;

struct request_dropper {
  void operator()(request_slot* slot) const noexcept { drop_request(slot); }
};
// An owner rather than a raw pointer for completion tokens: one that never starts must free the buffer too.
using owned_request_slot = std::unique_ptr<request_slot, request_dropper>;

// Passes the result of a started operation to a completion handler. Lives in memory of the handler's
// associated allocator.
template <class T, class Handler>
class request_handler : waiting_handler {
  using base_allocator = asio::associated_allocator_t<Handler, asio::recycling_allocator<void>>;
  using allocator = typename std::allocator_traits<base_allocator>::template rebind_alloc<request_handler>;
  using handler_executor = asio::associated_executor_t<Handler, asio::io_context::executor_type>;

 public:
  request_handler(owned_request_slot slot, Handler&& handler)
      : waiting_handler(&request_state(*slot), &discard),
        slot_(std::move(slot)),
        handler_(std::move(handler)),
        work_(asio::get_associated_executor(handler_, executor_of(request_state(*slot_).what()))) {}

  static void run(owned_request_slot slot, Handler&& handler) {
    allocator memory = allocator_for(handler);
    request_handler* self = std::allocator_traits<allocator>::allocate(memory, 1);
    new (self) request_handler(std::move(slot), std::move(handler));
    operation_state& state = request_state(*self->slot_);
    set_request_waiter(*self->slot_, &done, self);
    if (!request_done(*self->slot_)) {
      connect_cancellation(self->handler_, state);
    } else if (!complete_later(state)) {
      return post_to_loop(state, &done, self);
    }
    self->join();
  }

 private:
  static allocator allocator_for(const Handler& handler) {
    return allocator(asio::get_associated_allocator(handler, asio::recycling_allocator<void>()));
  }
  // Frees the memory and returns the handler.
  static Handler release(request_handler* self) noexcept {
    disconnect_cancellation(self->handler_);
    Handler handler(std::move(self->handler_));
    allocator memory = allocator_for(handler);
    self->~request_handler();
    std::allocator_traits<allocator>::deallocate(memory, self, 1);
    return handler;
  }
  static void discard(waiting_handler& h) noexcept {
    static_cast<void>(release(&static_cast<request_handler&>(h)));
  }
  // The memory is freed before the handler runs: the handler may start the next request.
  static void done(void* address) noexcept {
    auto* self = static_cast<request_handler*>(address);
    operation_state& state = request_state(*self->slot_);
    const boost::system::error_code code = state.asio_code();
    outcome<T> result(state);
    auto work = std::move(self->work_);
    const auto executor = work.get_executor();
    Handler handler = release(self);
    asio::dispatch(executor, [h = std::move(handler), code, result = std::move(result)]() mutable {
      call_handler<T>(std::move(h), code, std::move(result));
    });
  }

  owned_request_slot slot_;
  Handler handler_;
  asio::executor_work_guard<handler_executor> work_;
};

}  // namespace tutti::detail
