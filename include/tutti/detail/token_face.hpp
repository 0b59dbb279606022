// SPDX-License-Identifier: Apache-2.0
// Adapters from operations to Asio's completion tokens and to senders and receivers.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/waiting_handler.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tutti::detail {

namespace asio = boost::asio;

template <class T>
using signature_of = typename handler_signature<boost::system::error_code, T>::type;

template <class T>
inline constexpr bool is_direct_await = false;
template <class Signature, class Executor>
inline constexpr bool is_direct_await<asio::detail::awaitable_async_op_handler<Signature, Executor>> = true;

// What the handler of an operation of T receives.
template <class T>
auto outcome_of(operation_state& s) {
  if constexpr (std::is_void_v<T>) {
    return std::tuple(s.asio_code());
  } else {
    return std::tuple(s.asio_code(), s.value<T>());
  }
}

template <class Handler>
void connect_cancellation(const Handler& handler, operation_state& state) {
  auto slot = asio::get_associated_cancellation_slot(handler);
  if (!slot.is_connected()) return;
  slot.assign([s = &state](asio::cancellation_type type) {
    if (type != asio::cancellation_type::none) s->cancel();
  });
}

template <class Handler>
void disconnect_cancellation(const Handler& handler) {
  auto slot = asio::get_associated_cancellation_slot(handler);
  if (slot.is_connected()) slot.clear();
}

// A completion handler that waits for an operation, in memory of the handler's associated allocator.
// `Operation` has that operation: state() is its state.
template <class T, class Handler, class Operation>
class kept_handler : public Operation, waiting_handler {
  using base_allocator = asio::associated_allocator_t<Handler, asio::recycling_allocator<void>>;
  using allocator = typename std::allocator_traits<base_allocator>::template rebind_alloc<kept_handler>;
  using handler_executor = asio::associated_executor_t<Handler, asio::io_context::executor_type>;

 public:
  template <class From>
  static kept_handler* make(From&& from, Handler&& handler) {
    allocator memory = allocator_for(handler);
    kept_handler* const self = std::allocator_traits<allocator>::allocate(memory, 1);
    return new (self) kept_handler(std::forward<From>(from), std::move(handler));
  }
  void let_cancel() { connect_cancellation(handler_, this->state()); }
  using waiting_handler::join;
  // Calls the handler. The memory is freed before: the handler may start the next operation.
  void finish() noexcept {
    auto outcome = outcome_of<T>(this->state());
    auto work = std::move(work_);
    const auto executor = work.get_executor();
    Handler handler = release(this);
    asio::dispatch(executor, [h = std::move(handler), all = std::move(outcome)]() mutable {
      std::apply(std::move(h), std::move(all));
    });
  }

 private:
  template <class From>
  kept_handler(From&& from, Handler&& handler)
      : Operation(std::forward<From>(from)),
        waiting_handler(&this->state(), &discard),
        handler_(std::move(handler)),
        work_(asio::get_associated_executor(handler_, executor_of(this->state().what()))) {}
  static allocator allocator_for(const Handler& handler) {
    return allocator(asio::get_associated_allocator(handler, asio::recycling_allocator<void>()));
  }
  // Frees the memory and returns the handler.
  static Handler release(kept_handler* self) noexcept {
    disconnect_cancellation(self->handler_);
    Handler handler(std::move(self->handler_));
    allocator memory = allocator_for(handler);
    self->~kept_handler();
    std::allocator_traits<allocator>::deallocate(memory, self, 1);
    return handler;
  }
  static void discard(waiting_handler& h) noexcept {
    static_cast<void>(release(&static_cast<kept_handler&>(h)));
  }

  Handler handler_;
  asio::executor_work_guard<handler_executor> work_;
};

class own_operation {
 public:
  explicit own_operation(const call& what) : state_(what) {}
  operation_state& state() noexcept { return state_; }

 private:
  operation_state state_;
};

// The initiation passed to async_initiate. Values only: `deferred` and `parallel_group` store and move it.
template <class T>
class initiation {
 public:
  using executor_type = asio::io_context::executor_type;

  explicit initiation(call what) noexcept : what_(std::move(what)) {}
  executor_type get_executor() const noexcept { return executor_of(what_); }
  template <class Handler>
  void operator()(Handler&& handler) const {
    using H = std::decay_t<Handler>;
    using kept = kept_handler<T, H, own_operation>;
    kept* const self = kept::make(what_, H(std::forward<Handler>(handler)));
    self->let_cancel();
    operation_state& state = self->state();
    const auto done = [](operation_state& s) noexcept { static_cast<kept*>(s.owner())->finish(); };
    if (!state.start(done, self) || complete_later(state)) return self->join();
    post_to_loop(state, [](void* s) noexcept { static_cast<operation_state*>(s)->complete(); }, &state);
  }

 private:
  call what_;
};

// Keeps the handler of `co_await operation` inside boost::asio::awaitable in the operation itself.
template <class T>
class direct_handler {
  template <class H>
  struct kept : waiting_handler {
    kept(direct_handler& d, const operation_state& of, H&& h) noexcept
        : waiting_handler(&of, &discard), in(d), handler(std::move(h)) {}
    using waiting_handler::join;
    // Destroying the handler destroys the frame that contains this object.
    static void discard(waiting_handler& w) noexcept {
      const H moved = static_cast<kept&>(w).in.template take<H>();
    }
    direct_handler& in;
    H handler;
  };
  template <class H>
  kept<H>& held() noexcept {
    return *std::launder(reinterpret_cast<kept<H>*>(storage_));
  }
  template <class H>
  H take() noexcept {
    kept<H>& k = held<H>();
    disconnect_cancellation(k.handler);
    H moved(std::move(k.handler));
    k.~kept<H>();
    destroy_ = nullptr;
    return moved;
  }
  static constexpr std::size_t capacity = sizeof(waiting_handler) + 5 * sizeof(void*);

 public:
  direct_handler() noexcept = default;
  direct_handler(const direct_handler&) = delete;
  ~direct_handler() {
    if (destroy_ != nullptr) destroy_(storage_);
  }

  template <class Handler>
  void emplace(operation_state& state, Handler&& handler) {
    using H = std::decay_t<Handler>;
    static_assert(sizeof(kept<H>) <= capacity);
    H* h = &(new (storage_) kept<H>(*this, state, H(std::forward<Handler>(handler))))->handler;
    destroy_ = [](void* p) noexcept { static_cast<kept<H>*>(p)->~kept<H>(); };
    connect_cancellation(*h, state);
    const bool complete = state.start(
        [](operation_state& s) noexcept {
          auto* self = static_cast<direct_handler*>(s.owner());
          H moved = self->template take<H>();
          std::apply(std::move(moved), outcome_of<T>(s));
        },
        this);
    if (!complete || complete_later(state)) return held<H>().join();
    // There is no loop, or another one than this coroutine's, which resumes on its own executor.
    const auto executor = asio::get_associated_executor(*h);
    H moved = take<H>();
    asio::post(executor, [m = std::move(moved), all = outcome_of<T>(state)]() mutable {
      std::apply(std::move(m), std::move(all));
    });
  }

 private:
  void (*destroy_)(void*) noexcept = nullptr;
  alignas(std::max_align_t) std::byte storage_[capacity];
};

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
