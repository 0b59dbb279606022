// SPDX-License-Identifier: Apache-2.0
// Adapters from operations to Asio's completion tokens and to senders and receivers.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/sole_owner.hpp>
#include <tutti/detail/waiting_handler.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tutti::detail {

namespace asio = boost::asio;

template <class T>
using signature_of = typename handler_signature<boost::system::error_code, T>::type;

// ---- the slot that a started operation lives in ----

struct request_pool;
struct request_slot {
  std::optional<operation_state> state;
  request_pool* home = nullptr;
};
// Starts an operation in a slot of this thread's pool. A failure to start is its outcome.
request_slot* start_slot(call&& what);
// The same, but throws errc::wrong_thread.
request_slot* start_request(call&& what);
// Starts a message, constructing its call in the slot.
request_slot* start_request(operation_kind kind, const communicator_ref& comm, const buffer_view& data,
                            int peer, int tag, call_site where);
bool request_done(const request_slot& slot) noexcept;
operation_state& request_state(request_slot& slot) noexcept;
// Abandons the operation, if it is pending, and returns the slot to the pool.
void drop_request(request_slot* slot) noexcept;

struct request_dropper {
  void operator()(request_slot* slot) const noexcept { drop_request(slot); }
};
// An owner rather than a raw pointer for completion tokens: one that never starts must free the buffer too.
using owned_request_slot = sole_owner<request_slot*, request_dropper>;

// ---- completion handlers ----

// What the handler of an operation of T receives.
template <class T>
auto outcome_of(operation_state& s) {
  if constexpr (std::is_void_v<T>) {
    return std::tuple(s.asio_code());
  } else {
    return std::tuple(s.asio_code(), s.value<T>());
  }
}

// A completion handler that waits for a started operation, in memory of the handler's associated allocator.
template <class T, class Handler>
class kept_handler final : waiting_handler {
  using base_allocator = asio::associated_allocator_t<Handler, asio::recycling_allocator<void>>;
  using allocator = typename std::allocator_traits<base_allocator>::template rebind_alloc<kept_handler>;
  using handler_executor = asio::associated_executor_t<Handler, asio::io_context::executor_type>;

 public:
  // Calls the handler when the operation completes.
  static void keep(owned_request_slot slot, Handler&& handler) {
    allocator memory = allocator_for(handler);
    kept_handler* const memory_of_self = std::allocator_traits<allocator>::allocate(memory, 1);
    auto* const self = new (memory_of_self) kept_handler(std::move(slot), std::move(handler));
    operation_state& state = *self->slot_->state;
    state.set_waiter([](operation_state& s) noexcept { static_cast<kept_handler*>(s.owner())->finish(); },
                     self);
    self->cancellation_.connect([s = &state] { s->cancel(); });
    self->join();
  }

 private:
  kept_handler(owned_request_slot slot, Handler&& handler)
      : waiting_handler(&request_state(*slot)),
        slot_(std::move(slot)),
        handler_(std::move(handler)),
        cancellation_(handler_),
        work_(asio::get_associated_executor(handler_, executor_of(request_state(*slot_).what()))) {}
  static allocator allocator_for(const Handler& handler) {
    return allocator(asio::get_associated_allocator(handler, asio::recycling_allocator<void>()));
  }
  // Frees the memory and returns the handler.
  static Handler release(kept_handler* self) noexcept {
    self->cancellation_.clear();
    Handler handler(std::move(self->handler_));
    allocator memory = allocator_for(handler);
    self->~kept_handler();
    std::allocator_traits<allocator>::deallocate(memory, self, 1);
    return handler;
  }
  void discard() noexcept override { static_cast<void>(release(this)); }
  // Calls the handler. The memory is freed before: the handler may start the next operation.
  void finish() noexcept {
    auto outcome = outcome_of<T>(request_state(*slot_));
    auto work = std::move(work_);
    const auto executor = work.get_executor();
    Handler handler = release(this);
    asio::dispatch(executor, [h = std::move(handler), all = std::move(outcome)]() mutable {
      std::apply(std::move(h), std::move(all));
    });
  }

  owned_request_slot slot_;
  Handler handler_;
  slot_connection<Handler> cancellation_;
  asio::executor_work_guard<handler_executor> work_;
};

// Passes the result of a started operation to a completion handler, which is not called before this returns.
template <class T, class Handler>
void await_by_handler(owned_request_slot slot, Handler handler) {
  operation_state& state = request_state(*slot);
  if (!request_done(*slot) || complete_later(state))
    return kept_handler<T, Handler>::keep(std::move(slot), std::move(handler));
  const auto executor = asio::get_associated_executor(handler, executor_of(state.what()));
  post_call(executor, std::move(handler), outcome_of<T>(state));
}

// The initiation passed to async_initiate. Values only: `deferred` and `parallel_group` store and move it.
template <class T>
class initiation {
 public:
  using executor_type = asio::io_context::executor_type;

  explicit initiation(call what) noexcept : what_(std::move(what)) {}
  executor_type get_executor() const noexcept { return executor_of(what_); }
  template <class Handler>
  void operator()(Handler&& handler) const {
    await_by_handler<T>(owned_request_slot(start_slot(call(what_))),
                        std::decay_t<Handler>(std::forward<Handler>(handler)));
  }

 private:
  call what_;
};

// Keeps the handler of `co_await operation` inside boost::asio::awaitable in the operation itself.
template <class T>
class direct_handler {
  template <class H>
  struct kept final : waiting_handler {
    kept(direct_handler& d, const operation_state& of, H&& h) noexcept
        : waiting_handler(&of), in(d), handler(std::move(h)), cancellation(handler) {}
    using waiting_handler::join;
    // Destroying the handler destroys the frame that contains this object.
    void discard() noexcept override { const H moved = in.template take<H>(); }
    direct_handler& in;
    H handler;
    slot_connection<H> cancellation;
  };
  template <class H>
  H take() noexcept {
    auto* const k = static_cast<kept<H>*>(std::exchange(kept_, nullptr));
    k->cancellation.clear();
    H moved(std::move(k->handler));
    std::destroy_at(k);
    return moved;
  }
  static constexpr std::size_t capacity = sizeof(waiting_handler) + 6 * sizeof(void*);

 public:
  direct_handler() noexcept = default;
  direct_handler(const direct_handler&) = delete;
  ~direct_handler() {
    if (kept_ != nullptr) std::destroy_at(kept_);
  }

  template <class H>
  static constexpr bool fits = sizeof(kept<H>) <= capacity;

  template <class H>
  void emplace(operation_state& state, H handler) {
    auto* const k = new (storage_) kept<H>(*this, state, std::move(handler));
    kept_ = k;
    k->cancellation.connect([s = &state] { s->cancel(); });
    const bool complete = state.start(
        [](operation_state& s) noexcept {
          auto* self = static_cast<direct_handler*>(s.owner());
          H moved = self->template take<H>();
          std::apply(std::move(moved), outcome_of<T>(s));
        },
        this);
    if (!complete || complete_later(state)) return k->join();
    // There is no loop, or another one than this coroutine's, which resumes on its own executor.
    const auto executor = asio::get_associated_executor(k->handler);
    post_call(executor, take<H>(), outcome_of<T>(state));
  }

 private:
  waiting_handler* kept_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[capacity];
};

// Whether this is the handler of `co_await operation` inside boost::asio::awaitable. Asio keeps that type private:
// it is recognised by its printed name, so that this compiles with an Asio that renames it.
template <class Handler>
consteval bool awaits_directly() {
  constexpr std::string_view name = __PRETTY_FUNCTION__;
  if constexpr (name.find("Handler = boost::asio::detail::awaitable_async_op_handler<") != name.npos)
    return direct_handler<void>::fits<Handler>;
  else
    return false;
}
template <class Handler>
concept DirectHandler = awaits_directly<Handler>();

// The operation state of the sender protocol. start() begins; then exactly one of the receiver's three
// functions is called, from the loop, or inside start() if the operation completes at once.
template <class T, class Receiver>
class connected {
 public:
  connected(call what, Receiver receiver) : state_(std::move(what)), receiver_(std::move(receiver)) {}
  connected(const connected&) = delete;

  void start() noexcept {
    if (state_.start(&done, this)) done(state_);
  }

 private:
  static void done(operation_state& s) noexcept {
    auto* self = static_cast<connected*>(s.owner());
    if (s.failure() == errc::success) {
      if constexpr (std::is_void_v<T>) {
        std::move(self->receiver_).set_value();
      } else {
        std::move(self->receiver_).set_value(s.value<T>());
      }
    } else if (s.failure() == errc::cancelled) {
      std::move(self->receiver_).set_stopped();
    } else {
      std::move(self->receiver_).set_error(s.asio_code());
    }
  }

  operation_state state_;
  Receiver receiver_;
};

}  // namespace tutti::detail
