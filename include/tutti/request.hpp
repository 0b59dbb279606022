// SPDX-License-Identifier: Apache-2.0
// request: an operation that has been started and is awaited later.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/token_face.hpp>
#include <tutti/operation.hpp>

#include <boost/asio/async_result.hpp>
#include <coroutine>
#include <type_traits>
#include <utility>

namespace tutti {
namespace detail {
template <class T>
class join_requests;
}

// A started operation (isend, irecv, start) with a result of type T. For messages and collectives the result
// is a status. For a send or collective it only says how much data was moved. A request started by
// `start(world.split(...))` gives the new communicator.
//
// Move-only. Awaited at most once, from an lvalue: `status st = co_await receiving;`. The operation
// progresses and completes whether or not it is awaited.
// Errors: the await throws them, including errors of starting; the starting call only errc::wrong_thread.
// Cancellation: dropping a pending request cancels it. The destructor never waits for a peer, and the buffer
// may be reused when it returns. A receive loses no message: the next receive gets it. A send that had begun to
// leave is finished from a copy or taken back. A collective fails its communicator with errc::cancelled.
template <class T>
class [[nodiscard("dropping a request cancels it")]] basic_request {
 public:
  using value_type = T;

  basic_request() noexcept = default;
  explicit basic_request(detail::call&& what) : slot_(detail::start_request(std::move(what))) {}
  // Of a message, from the parts of its call.
  template <class... Parts>
  explicit basic_request(std::in_place_t, const Parts&... parts) : slot_(detail::start_request(parts...)) {}

  // False if nothing was started, or the request has been awaited.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  // Whether an await would return at once. Makes no progress.
  // Cost: no system call.
  bool done() const noexcept { return slot_ == nullptr || detail::request_done(*slot_); }
  // Asks the operation to end early. The await throws errc::cancelled, unless it had completed.
  void cancel() noexcept {
    if (slot_ != nullptr) slot_->state->cancel();
  }

  // The operation's state, for tutti's other libraries; null if the request is empty.
  detail::operation_state* state() const noexcept {
    return slot_ == nullptr ? nullptr : &detail::request_state(*slot_);
  }

  class awaiter final : detail::stop_node {
   public:
    explicit awaiter(basic_request& r) noexcept : request_(r) {}
    awaiter(const awaiter&) = delete;
    ~awaiter() {
      // The request may have been dropped meanwhile, and the slot reused.
      if (slot_ != nullptr && slot_->state) slot_->state->clear_waiter(waiting_.address());
    }
    bool await_ready() const noexcept { return request_.done(); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
      second_ = !request_.slot_->state->set_waiter(&detail::resume_owner, h.address());
      if (second_) return false;
      slot_ = request_.slot_.get();
      waiting_ = h;
      join_or_stop(detail::scope_of(h));
      return true;
    }
    T await_resume() {
      slot_ = nullptr;
      if (second_)
        throw error(errc::invalid_argument, "a request was awaited twice: another coroutine waits for it");
      return request_.take();
    }

   private:
    void on_stop(const detail::stop_scope& stopped) noexcept override {
      if (!request_.done()) request_.state()->stop(stopped.why(), stopped.text());
    }
    basic_request& request_;
    // The slot while this coroutine waits: its frame may be destroyed before the operation completes.
    detail::request_slot* slot_ = nullptr;
    std::coroutine_handle<> waiting_;
    bool second_ = false;
  };
  awaiter operator co_await() & noexcept { return awaiter(*this); }
  // A send or receive that is awaited where it is made: co_await world.send(x, 1), and not isend.
  awaiter operator co_await() && = delete;

  // Awaits the request by an Asio completion token, with signature void(error_code, T). The token takes over
  // the request, which is empty afterwards. A token that never starts drops it.
  // Errors: throws errc::invalid_argument if the request is empty, or of an empty communicator, and
  // errc::shut_down if its runtime has ended: there is no loop to call a handler from.
  // Cost: one block of the handler's associated allocator.
  template <boost::asio::completion_token_for<detail::signature_of<T>> Token>
  auto operator()(Token&& token) & {
    if (slot_ == nullptr) take();  // throws
    detail::owned_request_slot mine = std::move(slot_);
    detail::require_loop(detail::request_state(*mine).what());
    return boost::asio::async_initiate<Token, detail::signature_of<T>>(
        [](auto handler, detail::owned_request_slot slot) {
          detail::await_by_handler<T>(std::move(slot), std::move(handler));
        },
        token, std::move(mine));
  }

 private:
  friend class detail::join_requests<T>;

  T take() {
    if (slot_ == nullptr) throw error(errc::invalid_argument, "a request was awaited twice, or is empty");
    const detail::owned_request_slot ended = std::move(slot_);
    detail::operation_state& state = detail::request_state(*ended);
    state.rethrow();
    return state.value<T>();
  }

  detail::owned_request_slot slot_;
};

// The request of a message or collective.
using request = basic_request<status>;

// Starts a lazy operation now. The request gives the operation's result, or a status where that is void.
// Buffers: stay valid until the request has been awaited or dropped.
template <class T>
basic_request<std::conditional_t<std::is_void_v<T>, status, T>> start(operation<T> op) {
  return basic_request<std::conditional_t<std::is_void_v<T>, status, T>>(detail::call(op.what()));
}
// Rejects an operation on a temporary buffer, which would be gone before it is read. Name the buffer first.
template <class T>
void start(operation_on_temporary<T> op) = delete;

}  // namespace tutti
