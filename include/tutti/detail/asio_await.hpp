// SPDX-License-Identifier: Apache-2.0
// Awaits an Asio operation (the result of `async_xxx(..., boost::asio::deferred)`) inside a tutti::task.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/system_error.hpp>
#include <concepts>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tutti::detail {

namespace asio = boost::asio;

template <class A>
concept is_awaiter = requires(A& a) {
  { a.await_ready() } -> std::convertible_to<bool>;
};

// Types that co_await accepts by itself; these are left alone.
template <class A>
concept directly_awaitable = is_awaiter<A> || requires(A&& a) { std::forward<A>(a).operator co_await(); } ||
                             requires(A&& a) { operator co_await(std::forward<A>(a)); };

template <class A>
concept asio_operation = !directly_awaitable<A> && asio::is_async_operation<std::remove_cvref_t<A>>::value;

// The result of an Asio completion signature: a leading error_code or exception_ptr is thrown.
template <class Signature>
struct asio_result;

template <class... Values>
inline constexpr bool leads_with_error = false;
template <class First, class... Rest>
inline constexpr bool leads_with_error<First, Rest...> =
    std::is_same_v<First, boost::system::error_code> || std::is_same_v<First, std::exception_ptr>;

template <class... Values>
struct asio_result<void(Values...)> {
  using values = std::tuple<std::decay_t<Values>...>;
  static constexpr bool has_error = leads_with_error<std::decay_t<Values>...>;
  static auto take(values&& all) {
    if constexpr (has_error) {
      auto& first = std::get<0>(all);
      if constexpr (std::is_same_v<std::decay_t<decltype(first)>, std::exception_ptr>) {
        if (first) std::rethrow_exception(first);
      } else {
        if (first) throw boost::system::system_error(first);
      }
    }
    constexpr std::size_t skip = has_error ? 1 : 0;
    if constexpr (sizeof...(Values) == skip) {
      return;
    } else if constexpr (sizeof...(Values) == skip + 1) {
      return std::get<skip>(std::move(all));
    } else if constexpr (!has_error) {
      return std::move(all);
    } else {
      return std::apply([](auto&, auto&... rest) { return std::make_tuple(std::move(rest)...); }, all);
    }
  }
};

// resume_bounded from a handler of Asio. Also measures how long the coroutine keeps the loop thread.
void resume_from_asio(std::coroutine_handle<> h);

// Lives in the awaiting frame, which may be destroyed while the Asio operation is pending: the handler then does
// nothing. The Asio operation itself ends with its I/O object, as Asio's rules say.
// Cancellation: stopping the coroutine's scope cancels the operation through its cancellation slot (all types).
template <class Operation>
class asio_awaiter final : stop_node {
  using signature = typename asio::completion_signature_of<Operation>::type;
  using result = asio_result<signature>;

  struct handler {
    using cancellation_slot_type = asio::cancellation_slot;

    asio_awaiter* owner;
    // Null outside a scope. Lives as long as the handler: composed operations keep their state in it.
    std::shared_ptr<asio::cancellation_signal> cancel;
    handler(asio_awaiter* o, std::shared_ptr<asio::cancellation_signal> c) noexcept
        : owner(o), cancel(std::move(c)) {
      o->handler_ = this;
    }
    handler(handler&& other) noexcept
        : owner(std::exchange(other.owner, nullptr)), cancel(std::move(other.cancel)) {
      if (owner != nullptr) owner->handler_ = this;
    }
    ~handler() {
      if (owner != nullptr) owner->handler_ = nullptr;
    }
    cancellation_slot_type get_cancellation_slot() const noexcept {
      return cancel != nullptr ? cancel->slot() : cancellation_slot_type();
    }
    template <class... Values>
    void operator()(Values&&... values) {
      asio_awaiter* const o = std::exchange(owner, nullptr);
      if (o == nullptr) return;
      o->handler_ = nullptr;
      o->values_.emplace(std::forward<Values>(values)...);
      if (o->initiating_) return;  // completed inside its own initiation: await_suspend continues
      resume_from_asio(o->waiting_);
    }
  };

 public:
  explicit asio_awaiter(Operation&& operation) : operation_(std::move(operation)) {}
  asio_awaiter(const asio_awaiter&) = delete;
  ~asio_awaiter() {
    if (handler_ != nullptr) handler_->owner = nullptr;
  }
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    stop_scope* const scope = scope_of(h);
    if (scope != nullptr && scope->stopped())
      throw boost::system::system_error(asio::error::operation_aborted,
                                        "not started: the scope that it is in has ended");
    waiting_ = h;
    initiating_ = true;
    std::move(operation_)(
        handler(this, scope != nullptr ? make_recycled<asio::cancellation_signal>() : nullptr));
    initiating_ = false;
    if (values_.has_value()) return false;
    join(scope);
    return true;
  }
  auto await_resume() { return result::take(std::move(*values_)); }

 private:
  void on_stop(const stop_scope&) noexcept override {
    if (handler_ == nullptr || handler_->cancel == nullptr) return;
    const auto kept = handler_->cancel;  // the handler may be called meanwhile
    kept->emit(asio::cancellation_type::all);
  }

  Operation operation_;
  std::optional<typename result::values> values_;
  std::coroutine_handle<> waiting_;
  handler* handler_ = nullptr;
  bool initiating_ = false;
};

}  // namespace tutti::detail
