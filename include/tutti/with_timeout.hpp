// SPDX-License-Identifier: Apache-2.0
// with_timeout, with_deadline: an end for whatever is awaited inside.
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
#include <coroutine>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {
namespace detail {

// co_await gives the promise of the awaiting coroutine.
struct own_promise {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
    promise = &h.promise();
    return false;
  }
  scoped_promise* await_resume() const noexcept { return promise; }
  scoped_promise* promise = nullptr;
};

template <class A>
task<std::remove_cvref_t<await_result_t<A>>> within(
    A awaitable, std::chrono::steady_clock::time_point end,
    std::optional<std::chrono::steady_clock::duration> asked) {
  scoped_promise* const self = co_await own_promise{};
  stop_scope scope;
  scope.set_deadline();
  scope.inside(self->scope);
  const deadline timer(scope, end, asked);
  self->scope = &scope;
  try {
    if constexpr (std::is_void_v<await_result_t<A>>) {
      co_await static_cast<A&&>(awaitable);
      co_return;
    } else {
      co_return co_await static_cast<A&&>(awaitable);
    }
  } catch (const boost::system::system_error& e) {
    // Asio knows no reasons.
    if (timer.passed() && e.code() == boost::asio::error::operation_aborted)
      throw error(errc::timed_out, scope.text());
    throw;
  }
}

}  // namespace detail

// Awaits it, and asks everything in it to end early at `when`: operations, requests, Asio operations, and
// tasks with all that they await, however deep. Those operations have no other timeout meanwhile than an
// outer deadline. Completes with the result, which may also come late, or when all has ended: then with
// errc::timed_out, whose text names the operation.
//
// What is stopped: point to point loses no message; a collective fails its communicator on all ranks; an Asio
// operation is cancelled; compute runs to its end, and what awaits none of these is not interrupted.
// errc::wrong_thread on a thread without a runtime. One timer of the loop, no system call, nothing allocated
// in steady state.
template <class A>
auto with_deadline(A&& awaitable, std::chrono::steady_clock::time_point when) {
  return detail::within<A>(std::forward<A>(awaitable), when, std::nullopt);
}

// The same with an end that is `timeout` from now on: the call, not the await. A timeout that is too long for
// the clock, such as duration::max(), never ends it.
template <class A, class Rep, class Period>
auto with_timeout(A&& awaitable, std::chrono::duration<Rep, Period> timeout) {
  return detail::within<A>(std::forward<A>(awaitable), detail::after(detail::loop_time(), timeout),
                           detail::saturated(timeout));
}

}  // namespace tutti
