// SPDX-License-Identifier: Apache-2.0
// as_result: the outcome of an awaitable as a value instead of an exception.
#pragma once

#include <tutti/detail/branch.hpp>
#include <tutti/error.hpp>
#include <tutti/operation.hpp>
#include <tutti/task.hpp>

#include <boost/system/system_error.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace tutti {

// The outcome of an awaitable: `error` is empty after success. After a failure `value` is T(), or an empty
// optional if T has no default constructor.
template <class T = void>
struct result {
  using value_type = std::conditional_t<std::is_default_constructible_v<T>, T, std::optional<T>>;

  std::error_code error;
  value_type value{};
  std::string message;  // text of the error

  explicit operator bool() const noexcept { return !error; }
};
template <>
struct result<void> {
  std::error_code error;
  std::string message;

  explicit operator bool() const noexcept { return !error; }
};

namespace detail {

// An operation whose await does not throw.
template <class T, class Operation>
class [[nodiscard("an operation does nothing until it is awaited")]] unthrowing {
 public:
  static constexpr bool on_temporary = refers_to_temporary<Operation>;
  explicit unthrowing(operation<T>&& op) noexcept : state_(op.what()) {}
  unthrowing(unthrowing&& other) noexcept : state_(other.state_.what()) {}

  class awaiter : public operation<T>::awaiter {
   public:
    using operation<T>::awaiter::awaiter;
    result<T> await_resume() const {
      operation_state& of = this->state();
      result<T> r;
      if (of.failure() != errc::success) {
        r.error = make_error_code(of.failure());
        r.message = of.failure_text();
      } else if constexpr (!std::is_void_v<T>) {
        r.value = of.template value<T>();
      }
      return r;
    }
  };
  awaiter operator co_await() && noexcept { return awaiter(state_); }

 private:
  operation_state state_;
};

template <class A>
task<result<std::remove_cvref_t<await_result_t<A>>>> caught(A awaitable) {
  using T = std::remove_cvref_t<await_result_t<A>>;
  result<T> r;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await static_cast<A&&>(awaitable);
    } else {
      r.value = co_await static_cast<A&&>(awaitable);
    }
  } catch (const std::system_error& e) {
    r.error = e.code();
    r.message = e.what();
  } catch (const boost::system::system_error& e) {
    r.error = e.code();
    r.message = e.what();
  }
  co_return r;
}

}  // namespace detail

// Awaits `awaitable` and returns its outcome instead of throwing:
// `result<T> r = co_await as_result(world.recv(x, 0))`. For requests, tasks and Asio operations it catches
// exceptions that carry an error code; others pass.
// Cost: nothing is thrown for an operation; a failure allocates its text.
template <class T>
auto as_result(operation<T>&& op) {
  return detail::unthrowing<T, operation<T>>(std::move(op));
}
template <class T>
auto as_result(operation_on_temporary<T>&& op) {
  return detail::unthrowing<T, operation_on_temporary<T>>(std::move(op));
}
template <class A>
auto as_result(A&& awaitable) {
  return detail::bound_to<A>(detail::caught<A>(std::forward<A>(awaitable)));
}

}  // namespace tutti
