// SPDX-License-Identifier: Apache-2.0
// with_timeout, with_deadline: a time limit for an awaitable.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/branch.hpp>
#include <tutti/detail/deadline.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>
#include <tutti/task.hpp>

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <type_traits>
#include <utility>

namespace tutti {
namespace detail {

template <class A>
task<std::remove_cvref_t<await_result_t<A>>> within(A awaitable, std::chrono::steady_clock::time_point end,
                                                    std::chrono::steady_clock::duration asked) {
  scoped_promise* const self = co_await own_promise{};
  deadline_scope scope(end, asked);
  scope.inside(self->scope);
  self->scope = &scope;
  try {
    if constexpr (std::is_void_v<await_result_t<A>>) {
      co_await static_cast<A&&>(awaitable);
      co_return;
    } else {
      co_return co_await static_cast<A&&>(awaitable);
    }
  } catch (const boost::system::system_error& e) {
    // Asio's error does not say why the operation was aborted.
    if (scope.why() == errc::timed_out && e.code() == boost::asio::error::operation_aborted)
      throw error(errc::timed_out, scope.text());
    throw;
  }
}

}  // namespace detail

// Awaits `awaitable`, and at time `when` asks all of it to end early: operations, requests, Asio operations, and
// tasks with all that they await. Inside, this deadline or an earlier outer one replaces the default timeout.
// Completes: with the result, which may come late, or when everything inside has ended.
// Errors: errc::timed_out, naming the operation; errc::wrong_thread on a thread without a runtime.
// Cancellation: what is stopped ends as the other branches of when_any do.
// Returns a task; for an operation on a temporary one that is awaited in the same expression.
// Cost: one timer of the loop; no system call, and in steady state no allocation.
template <class A>
auto with_deadline(A&& awaitable, std::chrono::steady_clock::time_point when) {
  return detail::bound_to<A>(
      detail::within<A>(std::forward<A>(awaitable), when, std::chrono::steady_clock::duration::max()));
}

// with_deadline, `timeout` after the call, not the await. One too long for the clock never expires.
template <class A, class Rep, class Period>
auto with_timeout(A&& awaitable, std::chrono::duration<Rep, Period> timeout) {
  const std::chrono::steady_clock::duration limit = detail::saturated(timeout);
  return detail::bound_to<A>(
      detail::within<A>(std::forward<A>(awaitable), detail::after(detail::loop_time(), limit), limit));
}

}  // namespace tutti
