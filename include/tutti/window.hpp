// SPDX-License-Identifier: Apache-2.0
// window: memory of each rank of a communicator, which the other ranks read and write without a receive.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/operation.hpp>
#include <tutti/reduce_op.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::rma {
class window_state;
}

namespace tutti {
namespace detail {

using window_ref = std::shared_ptr<rma::window_state>;
// Opens this rank's part of a window on a communicator of its own. Throws std::bad_alloc.
window_ref open_window(const communicator_ref& comm, const buffer_view& mine, std::size_t signals);
void close_window(rma::window_state& w) noexcept;
const communicator_ref& communicator_of(const rma::window_state& w) noexcept;
std::uint64_t read_signal(const rma::window_state& w, int signal);

// Throws errc::invalid_argument unless there is a window.
void require_window(bool is_one);
inline constexpr int any_signal = -1;  // of a call that names none

// What a call on a window has besides its buffer.
class window_access : public call_part {
 public:
  explicit window_access(window_ref w, std::size_t first = 0, std::uint64_t given = 0,
                         std::uint64_t wanted = 0) noexcept
      : call_part(false), window(std::move(w)), offset(first), value(given), expected(wanted) {}
  std::string bad_argument(const call& what) const override;
  // Whether a wait for a signal of this value is over.
  virtual bool holds(std::uint64_t) const { return true; }

  const window_ref window;
  const std::size_t offset;  // elements
  const std::uint64_t value, expected;
};

template <class Predicate>
class signal_condition final : public window_access {
 public:
  signal_condition(window_ref w, Predicate p) : window_access(std::move(w)), predicate_(std::move(p)) {}
  bool holds(std::uint64_t now) const override { return predicate_(now); }

 private:
  const Predicate predicate_;
};

}  // namespace detail

// How communicator::window makes a window.
struct window_options {
  int signals = 64;  // of this rank
};

// Memory of each rank of a communicator, and 64-bit signals beside it, from communicator::window.
//
//   tutti::window w = co_await world.window(std::span(field));
//   co_await w.put_signal(border, right, 0, from_left);          // the data, then the signal
//   co_await w.wait_signal(from_left, [&](std::uint64_t n) { return n >= step; });
//
// Order and completion:
// - A put completes when its buffer may be changed, a get when its buffer has the data.
// - flush(r) completes when all puts and accumulates to r that this rank had completed are in r's memory.
// - A rank that sees the signal of a put_signal sees its data, and the puts to it that the sender had completed before.
// - Nothing else is ordered, not even two puts to one rank. What overlaps, or meets the owner's own access, races.
// - Signals are atomic. So is each element of an accumulate towards other accumulates, and towards nothing else.
// - A wait sees a signal's latest value, not each one: let signals count.
//
// On one host, memory of tutti::shared_allocator is read and written in place: one copy, which needs no turn of
// the owner's loop. Signals of ranks on one host are always in shared memory. Everything else, and accumulate, is
// carried out by the owner's loop when it turns.
//
// Move-only; use and drop it on the loop thread. Dropping it ends this rank's part at once, without the others: after
// it no rank writes to the buffer. What they start later on this rank ends with errc::peer_left, and what they
// had not flushed may be lost: drop it after a barrier. A rank that was stopped in the middle of a copy, as by a
// debugger, holds that up for at most a second. If it still has not gone on, a warning names the buffer, and its
// memory must not be reused.
//
// For all operations:
// Buffers: as of class operation. Nothing is in use when the await returns, by any path.
// Errors: those of messages. errc::invalid_argument if the access ends past the window of its rank: nothing is
// written. When a rank has died, all operations on the window end with errc::peer_failed and its name.
// Cancellation: what has not left does not happen. A long put or accumulate may have happened in part, and an
// atomic operation by the owner's loop may have happened.
// Cost: the first operation on another rank asks it for the size and the place of its window. No allocation in
// steady state.
template <class T>
class window {
  using kind = detail::operation_kind;

 public:
  // A handle without a window.
  window() noexcept = default;
  window(const detail::communicator_ref& made, const detail::call& what)
      : mine_(static_cast<T*>(what.out.data), what.out.count),
        state_(made ? detail::open_window(made, what.out, what.in.count) : nullptr) {}
  window(window&& other) noexcept
      : mine_(std::exchange(other.mine_, {})), state_(std::exchange(other.state_, nullptr)) {}
  window& operator=(window&& other) noexcept {
    std::swap(mine_, other.mine_);
    std::swap(state_, other.state_);
    return *this;
  }
  ~window() {
    if (state_) detail::close_window(*state_);
  }
  explicit operator bool() const noexcept { return state_ != nullptr; }
  // This rank's memory.
  std::span<T> local() const noexcept { return mine_; }

  // Writes `data` to the window of `rank`, from element `offset` on.
  template <class B>
  operation_on<B> put(B&& data, int rank, std::size_t offset = 0,
                      call_site where = call_site::current()) const {
    return operation<>(reading(kind::put, data, rank, detail::any_signal, where, access(offset)));
  }
  // Writes `data`, then adds `value` to signal `signal` of `rank`. `data` may be an empty span.
  template <class B>
  operation_on<B> put_signal(B&& data, int rank, std::size_t offset, int signal, std::uint64_t value = 1,
                             call_site where = call_site::current()) const {
    return operation<>(reading(kind::put_signal, data, rank, signal, where, access(offset, value)));
  }
  // Reads as many elements as `data` has from the window of `rank`, from element `offset` on.
  template <class B>
  operation<> get(B&& data, int rank, std::size_t offset = 0, call_site where = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "get needs a writable buffer that outlives the operation: an lvalue, or a span");
    check_elements<B>();
    detail::call what = call(kind::get, rank, detail::any_signal, where, access(offset));
    what.out = detail::view_of(data);
    return operation<>(std::move(what));
  }
  // Reduces each element of the window of `rank` from `offset` on with that of `data`: sum, product, min, max,
  // band, bor or bxor.
  // Completes: as a put. flush(rank) waits until it has happened.
  template <class B, class Op>
  operation_on<B> accumulate(B&& data, int rank, std::size_t offset, const Op& op,
                             call_site where = call_site::current()) const {
    static_assert(
        detail::built_in<Op>,
        "tutti: accumulate is carried out by another rank: sum, product, min, max, band, bor, bxor");
    static_assert(Op::kind != reduce_kind::avg && Op::kind != reduce_kind::premul_sum,
                  "tutti: accumulate has no avg and no premul_sum");
    detail::call what = reading(kind::accumulate, data, rank, detail::any_signal, where, access(offset));
    what.op = detail::make_reduction<Op, T>(op);
    return operation<>(std::move(what));
  }
  // Waits until the puts and accumulates to `rank` that this rank has completed are in its memory.
  operation<> flush(int rank, call_site where = call_site::current()) const {
    return operation<>(call(kind::flush, rank, detail::any_signal, where, access()));
  }

  // Waits until `until` is true of this rank's signal, and returns its value. `until` is called from the loop
  // whenever the signal may have changed; it computes, and calls nothing of the library.
  // Errors: errc::peer_failed if any rank of the window dies, errc::peer_left if all others have dropped it.
  template <std::predicate<std::uint64_t> Predicate>
  operation<std::uint64_t> wait_signal(int signal, Predicate until,
                                       call_site where = call_site::current()) const {
    detail::require_window(state_ != nullptr);
    return operation<std::uint64_t>(
        call(kind::wait_signal, any_source, signal, where,
             detail::part_ref(new detail::signal_condition<Predicate>(state_, std::move(until)))));
  }
  // Adds `value` to signal `signal` of `rank`, and returns its value before.
  operation<std::uint64_t> fetch_add(int rank, int signal, std::uint64_t value,
                                     call_site where = call_site::current()) const {
    return operation<std::uint64_t>(call(kind::fetch_add, rank, signal, where, access(0, value)));
  }
  // Sets signal `signal` of `rank` to `desired` if it is `expected`, and returns its value before.
  operation<std::uint64_t> compare_exchange(int rank, int signal, std::uint64_t expected,
                                            std::uint64_t desired,
                                            call_site where = call_site::current()) const {
    return operation<std::uint64_t>(
        call(kind::compare_exchange, rank, signal, where, access(0, desired, expected)));
  }
  // This rank's signal now.
  // Errors: throws errc::invalid_argument if there is no such signal.
  std::uint64_t signal(int signal) const {
    detail::require_window(state_ != nullptr);
    return detail::read_signal(*state_, signal);
  }

 private:
  template <class B>
  static constexpr void check_elements() {
    static_assert(std::is_same_v<element_of_t<B>, T>,
                  "tutti: the buffer needs the element type of the window");
    static_assert(!detail::of_device<B>, "tutti: windows are memory of the host, and so are their buffers");
  }
  detail::part_ref access(std::size_t offset = 0, std::uint64_t value = 0, std::uint64_t expected = 0) const {
    detail::require_window(state_ != nullptr);
    return detail::part_ref(new detail::window_access(state_, offset, value, expected));
  }
  detail::call call(kind of, int rank, int signal, call_site where, detail::part_ref part) const {
    detail::call what(of, detail::communicator_of(*state_), where);
    what.peer = rank;
    what.tag = signal;
    what.part = std::move(part);
    return what;
  }
  template <class B>
  detail::call reading(kind of, B& data, int rank, int signal, call_site where, detail::part_ref part) const {
    static_assert(Buffer<B>,
                  "tutti: not a buffer: a contiguous range of trivially copyable elements, or one");
    check_elements<B>();
    detail::call what = call(of, rank, signal, where, std::move(part));
    what.in = detail::view_of(data);
    return what;
  }

  std::span<T> mine_;
  detail::window_ref state_;
};

}  // namespace tutti
