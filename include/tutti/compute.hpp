// SPDX-License-Identifier: Apache-2.0
// compute: runs work for the processor outside the loop thread.
#pragma once

#include <tutti/detail/flow.hpp>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/error.hpp>
#include <tutti/status.hpp>

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti {
namespace detail {

// A piece of work for the compute pool. The submitter owns it until the loop thread has called `finished`.
struct compute_job {
  void (*run)(compute_job&) noexcept = nullptr;       // called on a pool thread
  void (*finished)(compute_job&) noexcept = nullptr;  // called on the loop thread
  std::shared_ptr<void> ticket;                       // for submit and wait
  call_site where;                                    // of the call, in the user's program
};
// Submits a job.
// Errors: throws errc::wrong_thread if this thread runs no runtime's loop.
void submit_compute(compute_job& job);
// Blocks until `run` has returned, and prevents the call of `finished`.
void wait_compute(compute_job& job) noexcept;

template <class F>
class compute_awaiter : compute_job {
  using result = std::invoke_result_t<F&>;

 public:
  compute_awaiter(F f, call_site place) : f_(std::move(f)) { where = place; }
  compute_awaiter(compute_awaiter&& other) : f_(std::move(other.f_)) { where = other.where; }
  ~compute_awaiter() {
    if (ticket != nullptr) wait_compute(*this);
  }

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> h) {
    if (const stop_scope* const scope = scope_of(h); scope != nullptr && scope->stopped())
      throw error(scope->why(), "compute was not started: " + scope->text());
    waiting_ = h;
    run = [](compute_job& job) noexcept {
      auto& self = static_cast<compute_awaiter&>(job);
      try {
        if constexpr (std::is_void_v<result>) {
          self.f_();
          self.value_.emplace();
        } else if constexpr (std::is_reference_v<result>) {
          result&& object = self.f_();
          self.value_.emplace(std::addressof(object));
        } else {
          self.value_.emplace(self.f_());
        }
      } catch (...) {
        self.failure_ = std::current_exception();
      }
    };
    finished = [](compute_job& job) noexcept { resume_bounded(static_cast<compute_awaiter&>(job).waiting_); };
    submit_compute(*this);
  }
  result await_resume() {
    if (failure_) std::rethrow_exception(failure_);
    if constexpr (std::is_reference_v<result>) {
      return static_cast<result>(**value_);
    } else if constexpr (!std::is_void_v<result>) {
      return std::move(*value_);
    }
  }

 private:
  F f_;
  std::coroutine_handle<> waiting_;
  std::exception_ptr failure_;
  // Points to what f returned a reference to.
  std::optional<
      std::conditional_t<std::is_void_v<result>, std::monostate,
                         std::conditional_t<std::is_reference_v<result>, std::add_pointer_t<result>, result>>>
      value_;
};

}  // namespace detail

// Runs f() on the compute pool, while the loop thread goes on communicating. The awaiting coroutine resumes
// on its loop thread with f's result, which may be a reference, or its exception. The pool belongs to the
// process and is made on first use. It has as many threads as there are cores per local rank, at least one.
// Cancellation: no scope or deadline stops f. Destroying the awaiting frame blocks until f has returned.
// Cost: two hand-overs between threads (some microseconds); in steady state no allocation.
template <class F>
auto compute(F&& f, call_site where = call_site::current()) {
  using function = std::decay_t<F>;
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
  static_assert(
      std::is_lvalue_reference_v<F> || std::is_trivially_destructible_v<function>,
      "tutti: g++ before 13 destroys a lambda's captures twice when the lambda is a temporary of a co_await "
      "expression; name it first: `auto work = [...] {...}; co_await tutti::compute(work);`, or capture by "
      "reference");
#endif
  return detail::compute_awaiter<function>(std::forward<F>(f), where);
}

}  // namespace tutti
