// SPDX-License-Identifier: Apache-2.0
// request: an operation that has been started and is awaited later.
#pragma once

#include <tutti/operation.hpp>

#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <coroutine>
#include <memory>
#include <utility>

namespace tutti {
namespace detail {

struct request_slot;
// A started operation in a slot from this thread's pool: no heap allocation in steady state.
request_slot* start_request(call what);
bool request_done(const request_slot& slot) noexcept;
operation_state& request_state(request_slot& slot) noexcept;
// At most one: called, once, when the operation completes. To be set before that, on a slot that is not done.
void set_request_waiter(request_slot& slot, void (*f)(void*) noexcept, void* owner) noexcept;
// Cancels what is pending; on return no buffer is referenced; the slot goes back to the pool.
void drop_request(request_slot* slot) noexcept;
void cancel_request(request_slot& slot) noexcept;

}  // namespace detail

// A started communication (isend, irecv, start).
//
// Move-only. Awaited at most once, from an lvalue: `status st = co_await receiving;` (for a send, and for collectives,
// the status only says what was moved). Completion does not need the await: communication goes on while the program
// does other things. Dropping a pending request cancels it, and the destructor returns only when the buffer is free: a
// receive that was not matched is withdrawn and loses no message, a send that had begun to leave is finished from a
// copy or taken back, a collective fails its communicator on all ranks (errc::cancelled). The destructor never waits
// for a peer. Errors are thrown from the await; those of starting too, except errc::wrong_thread, thrown at once.
class [[nodiscard("dropping a request cancels it")]] request {
 public:
  request() noexcept = default;
  explicit request(detail::call what) : slot_(detail::start_request(std::move(what))) {}
  request(request&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  request& operator=(request&& other) noexcept {
    if (this != &other) {
      reset();
      slot_ = std::exchange(other.slot_, nullptr);
    }
    return *this;
  }
  ~request() { reset(); }

  // False: nothing was started, or it has been awaited.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  // Whether an await would return at once. Costs no system call, makes no progress.
  bool done() const noexcept { return slot_ == nullptr || detail::request_done(*slot_); }
  // Asks for an early end; the await then throws errc::cancelled, or gives the result when it came first.
  void cancel() noexcept {
    if (slot_ != nullptr) detail::cancel_request(*slot_);
  }

  class awaiter {
   public:
    explicit awaiter(request& r) noexcept : request_(r) {}
    bool await_ready() const noexcept { return request_.done(); }
    void await_suspend(std::coroutine_handle<> h) const noexcept {
      detail::set_request_waiter(
          *request_.slot_,
          [](void* address) noexcept { detail::resume_bounded(std::coroutine_handle<>::from_address(address)); },
          h.address());
    }
    status await_resume() const { return request_.take(); }

   private:
    request& request_;
  };
  awaiter operator co_await() & noexcept { return awaiter(*this); }

  // The same by a completion token, signature void(error_code, status). Allocates one block for the handler.
  template <class Token>
    requires(boost::asio::completion_token_for<Token, detail::signature_of<status>>)
  auto operator()(Token&& token) & {
    return boost::asio::async_initiate<Token, detail::signature_of<status>>(
        [](auto handler, detail::request_slot* slot) {
          using state = handler_state<std::decay_t<decltype(handler)>>;
          auto kept = std::make_unique<state>(slot, std::move(handler));
          if (detail::request_done(*slot)) {
            detail::post_to_loop(detail::request_state(*slot), &state::finish, kept.release());
          } else {
            detail::set_request_waiter(*slot, &state::finish, kept.get());
            kept.release();
          }
        },
        token, std::exchange(slot_, nullptr));
  }

 private:
  template <class Handler>
  struct handler_state {
    handler_state(detail::request_slot* s, Handler&& h) : slot(s), handler(std::move(h)) {}
    static void finish(void* self) noexcept {
      std::unique_ptr<handler_state> state(static_cast<handler_state*>(self));
      const detail::operation_state& operation = detail::request_state(*state->slot);
      const boost::system::error_code code = operation.asio_code();
      const status result = operation.result();
      const auto executor =
          boost::asio::get_associated_executor(state->handler, detail::executor_of(*operation.what().comm));
      Handler h(std::move(state->handler));
      detail::drop_request(state->slot);
      state.reset();
      boost::asio::dispatch(executor, [h = std::move(h), code, result]() mutable { std::move(h)(code, result); });
    }
    detail::request_slot* slot;
    Handler handler;
  };

  void reset() noexcept {
    if (slot_ != nullptr) detail::drop_request(std::exchange(slot_, nullptr));
  }
  status take() {
    if (slot_ == nullptr) throw error(errc::invalid_argument, "a request was awaited twice, or is empty");
    struct dropper {
      request& r;
      ~dropper() { r.reset(); }
    } drop{*this};
    detail::operation_state& state = detail::request_state(*slot_);
    state.rethrow();
    return state.result();
  }

  detail::request_slot* slot_ = nullptr;
};

// Starts a lazy operation now. Its buffers must stay until the request has been awaited or dropped.
template <class T>
request start(operation<T> op) {
  return request(op.what());
}

}  // namespace tutti
