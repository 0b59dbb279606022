// SPDX-License-Identifier: Apache-2.0
// operation<T>: what every operation of a communicator, and of a device's stream, returns.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/flow.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/token_face.hpp>

#include <boost/asio/async_result.hpp>
#include <coroutine>
#include <exception>
#include <type_traits>
#include <utility>

namespace tutti {

// A communication that does nothing until it is used, once, as an rvalue, in one of these ways:
//   co_await world.barrier()           in any coroutine; its state lives in the awaiting frame, no allocation
//   co_await world.barrier()           in a boost::asio::awaitable, likewise
//   world.barrier()(token)             any Asio completion token; signature void(error_code) or
//                                      void(error_code, status); one block of the handler's associated
//                                      allocator
//   tutti::start(world.barrier())      now; the request is awaited later
//   world.barrier().connect(receiver)  a receiver of the program's: set_value(T...), set_error(error_code),
//                                      set_stopped(); no allocation
//   stdexec::then(world.barrier(), f)  a sender for std::execution (P2300) and stdexec, which take what can be
//                                      awaited for one: set_value(T...), set_error(std::exception_ptr), where
//                                      errc::cancelled is an error too; one coroutine frame, of theirs. To be
//                                      started on the loop thread
//
// T is void or status. Buffers must stay valid, and unmodified (sent) or untouched (received), until it has
// completed, failed, or been cancelled. Destroying the awaiting frame cancels it; on return no buffer is
// referenced any more.
template <class T = void>
class [[nodiscard(
    "an operation does nothing until it is awaited, started or given a completion token")]] operation {
 public:
  using value_type = T;
  using signature = detail::signature_of<T>;

  explicit operation(detail::call&& what) noexcept : state_(std::move(what)) {}
  // The call is made where it stays.
  template <class... Parts>
  explicit operation(std::in_place_t, const Parts&... parts) noexcept : state_(std::in_place, parts...) {}
  // Only before it is used.
  operation(operation&& other) noexcept : state_(other.state_.what()) {}

  class awaiter {
   public:
    explicit awaiter(detail::operation_state& state) noexcept : state_(state), stop_(state) {}
    awaiter(const awaiter&) = delete;
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
      const auto resume = [](detail::operation_state& s) noexcept {
        detail::resume_bounded(std::coroutine_handle<>::from_address(s.owner()));
      };
      if (detail::stop_scope* const scope = detail::scope_of(h))
        return !stop_.start(*scope, resume, h.address());
      return !state_.start(resume, h.address());
    }
    T await_resume() const {
      state_.rethrow();
      if constexpr (!std::is_void_v<T>) return state_.value<T>();
    }

   private:
    detail::operation_state& state_;
    detail::operation_stop stop_;
  };
  awaiter operator co_await() && noexcept { return awaiter(state_); }

  template <class Token>
    requires(boost::asio::completion_token_for<Token, signature> &&
             !detail::is_direct_await<std::decay_t<Token>>)
  auto operator()(Token&& token) && {
    if (!detail::has_loop(state_.what())) refuse();
    return boost::asio::async_initiate<Token, signature>(detail::initiation<T>(state_.what()), token);
  }
  // co_await inside boost::asio::awaitable without a token: the operand is alive in the suspended frame, so
  // the handler is kept in it and nothing is allocated. If Asio's internal name changed, the overload above
  // would serve.
  template <class Signature, class Executor>
  void operator()(boost::asio::detail::awaitable_async_op_handler<Signature, Executor> handler) && {
    direct_.emplace(state_, std::move(handler));
  }

  // Receivers of P2300 want operation states that are marked by a type of their library: it makes them itself.
  template <class Receiver>
    requires(!requires { typename std::decay_t<Receiver>::receiver_concept; })
  detail::connected<T, std::decay_t<Receiver>> connect(Receiver&& receiver) && {
    return detail::connected<T, std::decay_t<Receiver>>(state_.what(), std::forward<Receiver>(receiver));
  }

  // Of a collective: by this algorithm, on all ranks. errc::invalid_argument where it has none of that name,
  // or where that one cannot do this call.
  operation with(algorithm wanted) && noexcept {
    detail::call what = state_.what();
    what.wanted = wanted;
    return operation(std::move(what));
  }

  const detail::call& what() const noexcept { return state_.what(); }

 private:
  // An empty communicator has no loop that a handler could be called from: thrown here and now.
  [[noreturn]] void refuse() {
    state_.start(nullptr, nullptr);
    state_.rethrow();
    std::terminate();
  }

  detail::operation_state state_;
  detail::direct_handler<T> direct_;
};

// An operation of which a buffer is a temporary, which ends with the expression that makes it:
// co_await world.send(std::vector<float>(4), 1). Await it there; start() refuses it.
class [[nodiscard("an operation does nothing until it is awaited")]] operation_on_temporary
    : public operation<> {
 public:
  using operation::operation;
  operation_on_temporary(operation&& other) noexcept : operation(std::move(other)) {}
  operation_on_temporary with(algorithm wanted) && noexcept {
    return std::move(*this).operation::with(wanted);
  }
};

// What an operation returns that reads from a B.
template <class B>
using operation_on = std::conditional_t<detail::lasting<B>, operation<>, operation_on_temporary>;

}  // namespace tutti
