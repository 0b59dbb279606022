// SPDX-License-Identifier: Apache-2.0
// operation<T>: what every operation of a communicator or of a device stream returns.
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

// A communication that starts when it is used: once, as an rvalue, in one of these ways:
//   co_await world.barrier()           in any coroutine: no allocation
//   co_await world.barrier()           in a boost::asio::awaitable: no allocation
//   world.barrier()(token)             any Asio completion token, with signature void(error_code) or
//                                      void(error_code, status): one block of the handler's allocator
//   tutti::start(world.barrier())      starts now; the returned request is awaited later
//   world.barrier().connect(receiver)  a receiver of the program: set_value(T...), set_error(error_code),
//                                      set_stopped(); no allocation
//   stdexec::then(world.barrier(), f)  a sender for std::execution (P2300) and stdexec: set_value(T...) or
//                                      set_error(std::exception_ptr), for errc::cancelled too. Start it on
//                                      the loop thread. Their adaptor allocates one coroutine frame
//
// T is void, status, communicator, window, matched_message, or the value of a signal. An awaited operation keeps its
// state in the awaiting frame, and is moved only before it has been used: afterwards that is an assertion.
// Buffers: stay valid until the operation has completed, failed or been cancelled. Until then the program
// does not modify a buffer that is sent, and does not touch one that is received into.
// Cancellation: destroying the awaiting frame cancels the operation. Its buffers may then be reused.
// Cost: 688 bytes in the awaiting frame, so that nothing is allocated to start it: the call (192), what carries it out
// (320), how it ended (64), and a handler of Asio (112).
template <class T = void>
class [[nodiscard(
    "an operation does nothing until it is awaited, started or given a completion token")]] operation {
 public:
  using value_type = T;
  using signature = detail::signature_of<T>;

  explicit operation(detail::call&& what) noexcept : state_(std::move(what)) {}
  // Constructs the call in place from its parts.
  template <class... Parts>
  explicit operation(std::in_place_t, const Parts&... parts) noexcept : state_(std::in_place, parts...) {}
  operation(operation&& other) noexcept : state_(other.state_.unused_call()) {}

  class awaiter : detail::operation_stop {
   public:
    using operation_stop::operation_stop;
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
      if (detail::stop_scope* const scope = detail::scope_of(h))
        return !this->start(*scope, &detail::resume_owner, h.address());
      return !state().start(&detail::resume_owner, h.address());
    }
    T await_resume() const {
      state().rethrow();
      if constexpr (!std::is_void_v<T>) return state().template value<T>();
    }

   protected:
    using operation_stop::state;
  };
  awaiter operator co_await() && noexcept { return awaiter(state_); }

  template <class Token>
    requires(boost::asio::completion_token_for<Token, signature> &&
             !detail::DirectHandler<std::decay_t<Token>>)
  auto operator()(Token&& token) && {
    detail::require_loop(state_.what());
    return boost::asio::async_initiate<Token, signature>(detail::initiation<T>(state_.what()), token);
  }
  // co_await inside boost::asio::awaitable without a token. The operand lives in the suspended frame, and keeps
  // the handler. If Asio's internal name or its size changes, the overload above serves instead.
  template <detail::DirectHandler Handler>
  void operator()(Handler handler) && {
    direct_.emplace(state_, std::move(handler));
  }

  // Connects to a receiver of the program. Receivers of a P2300 library are excluded: they need operation
  // states marked by that library's type, so the library makes its own.
  template <class Receiver>
    requires(!requires { typename std::decay_t<Receiver>::receiver_concept; })
  detail::connected<T, std::decay_t<Receiver>> connect(Receiver&& receiver) && {
    return detail::connected<T, std::decay_t<Receiver>>(state_.what(), std::forward<Receiver>(receiver));
  }

  // Selects the algorithm of a collective; all ranks select the same one.
  // Errors: errc::invalid_argument if the collective has no algorithm of that name, or it cannot do this
  // call. Throws it at once if this is no collective.
  operation with(algorithm wanted) && {
    detail::call what = state_.unused_call();
    detail::require_algorithms(what);
    what.wanted = wanted;
    return operation(std::move(what));
  }

  const detail::call& what() const noexcept { return state_.what(); }

 private:
  detail::operation_state state_;
  detail::direct_handler<T> direct_;
};

// An operation that reads a temporary buffer or list: `co_await world.send(std::vector<float>(4), 1)`. It is
// awaited in the same expression; start(), prepare(), completion tokens and receivers do not accept it.
template <class T = void>
class [[nodiscard("an operation does nothing until it is awaited")]] operation_on_temporary
    : public operation<T> {
 public:
  static constexpr bool on_temporary = true;
  using operation<T>::operation;
  operation_on_temporary(operation<T>&& other) noexcept : operation<T>(std::move(other)) {}
  operation_on_temporary with(algorithm wanted) && { return std::move(*this).operation<T>::with(wanted); }

  // co_await inside boost::asio::awaitable. If Asio's internal name or its size changes, name the buffer.
  template <detail::DirectHandler Handler>
  void operator()(Handler handler) && {
    std::move(*this).operation<T>::operator()(std::move(handler));
  }
  // The buffer would be gone before it is read. Name it first.
  template <class Token>
    requires(!detail::DirectHandler<std::decay_t<Token>>)
  void operator()(Token&& token) && = delete;
  template <class Receiver>
  void connect(Receiver&& receiver) && = delete;
};

// What an operation of result T that reads from B returns.
template <class T, class... B>
using operation_reading =
    std::conditional_t<(detail::lasting<B> && ...), operation<T>, operation_on_temporary<T>>;
template <class... B>
using operation_on = operation_reading<void, B...>;

}  // namespace tutti

// Asio derives both from a call with a token, which operation_on_temporary refuses.
template <class T>
struct boost::asio::is_async_operation<tutti::operation_on_temporary<T>> : std::true_type {};
template <class T>
struct boost::asio::completion_signature_of<tutti::operation_on_temporary<T>> {
  using type = typename tutti::operation<T>::signature;
};
