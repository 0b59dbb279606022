// SPDX-License-Identifier: Apache-2.0
// communicator: the ranks of a group, and what they can say to each other.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/operation.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/status.hpp>

#include <boost/asio/io_context.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {

// A group of ranks whose messages no other communicator sees. A cheap handle: copies share the group.
//
// Belongs to its runtime's loop: its verbs are called on the loop thread, from coroutines and handlers that run there.
// From another thread they end with errc::wrong_thread; boost::asio::post or co_spawn on get_executor() is the way in.
//
// Buffers: one object or a contiguous range of a trivially copyable type; counts are in elements. A buffer must stay
// valid, and unmodified (sent) or untouched (received), until its operation has completed, failed or been cancelled.
// Every wait ends at the latest after init_options::timeout with errc::timed_out, and earlier when a peer dies
// (errc::peer_failed) or leaves (errc::peer_left). Wrong arguments end with errc::invalid_argument and move nothing.
//
// Order: messages from one rank to another with one tag do not overtake each other. Collectives are matched by the
// order in which they are started, which must be the same on all ranks; several may be in flight. Ranks that call
// different collectives, counts, element types, reductions or roots all get errc::mismatch, naming both calls. A
// collective that fails on one rank fails on all; the communicator is then failed, and says so to every further call.
class communicator {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  communicator() noexcept = default;   // a member of nothing
  explicit communicator(detail::communicator_ref state) noexcept : state_(std::move(state)) {}

  int rank() const noexcept;
  int size() const noexcept;
  // False: this rank is not a member.
  explicit operator bool() const noexcept { return static_cast<bool>(state_); }
  executor_type get_executor() const noexcept { return detail::executor_of(*state_); }
  const std::string& name() const noexcept;   // as in error texts: "world"

  // ---- point to point ----

  // Sends `data` to `dest` with `tag` (>= 0). Completes when the buffer may be changed: small messages are copied out
  // at once, long ones (over 4 KiB in shared memory, 64 KiB on TCP) when the receiver has taken them. Cancelling takes
  // back what has not been received. Copies: shared memory 2 (in and out of a ring), or 1 for long messages that lie in
  // memory of tutti::shared_allocator; TCP the kernel's.
  template <Buffer B>
  operation<> send(const B& data, int dest, int tag = 0) const {
    return operation<>(message(detail::operation_kind::send, detail::view_of(data), dest, tag));
  }
  // Receives one message from `source` (or any_source) with `tag` (or any_tag). Completes with the message in `data`.
  // A longer message is errc::truncated, with nothing written past the end; a shorter one is fine: status.bytes.
  // Cancelling a receive that has no message yet loses none.
  template <class B>
  operation<status> recv(B&& data, int source, int tag = any_tag) const {
    static_assert(WritableBuffer<B>, "recv needs a writable buffer that outlives the operation: an lvalue, or a span");
    return operation<status>(message(detail::operation_kind::receive, detail::view_of(data), source, tag));
  }
  // The same, started on return; see request.
  template <Buffer B>
  request isend(const B& data, int dest, int tag = 0) const {
    return request(message(detail::operation_kind::send, detail::view_of(data), dest, tag));
  }
  template <Buffer B>
    requires(!std::is_lvalue_reference_v<B> && !std::ranges::borrowed_range<B>)
  request isend(const B&& temporary, int dest, int tag = 0) const = delete;   // gone before the message has left
  template <class B>
  request irecv(B&& data, int source, int tag = any_tag) const {
    static_assert(WritableBuffer<B>, "irecv needs a writable buffer that outlives the request: an lvalue, or a span");
    return request(message(detail::operation_kind::receive, detail::view_of(data), source, tag));
  }

  // ---- collectives ----

  // Completes when every rank has started its barrier. ceil(log2 size) rounds of empty messages.
  operation<> barrier() const { return operation<>(detail::call(detail::operation_kind::barrier, state_)); }

  // `data` of `root` to `data` of every rank; counts must be equal. Completes on each rank when its part is done.
  template <class B>
  operation<> broadcast(B&& data, int root) const {
    static_assert(WritableBuffer<B>, "broadcast needs a writable buffer that outlives it: an lvalue, or a span");
    return operation<>(message(detail::operation_kind::broadcast, detail::view_of(data), root, 0));
  }

  // Element by element, `inout` of all ranks reduced into `inout` of every rank. Bit for bit the same result on all
  // ranks, and from run to run with the same ranks and algorithm.
  template <class B, class Op>
  operation<> all_reduce(B&& inout, const Op& op) const {
    static_assert(WritableBuffer<B>, "all_reduce needs a writable buffer that outlives it: an lvalue, or a span");
    return reduction(detail::view_of(inout), detail::view_of(inout), op, element_of_t<B>{});
  }
  // The same out of place; `in` and `out` have the same count and do not overlap.
  template <Buffer I, class B, class Op>
  operation<> all_reduce(const I& in, B&& out, const Op& op) const {
    static_assert(WritableBuffer<B>, "all_reduce needs a writable result that outlives it: an lvalue, or a span");
    static_assert(std::is_same_v<element_of_t<I>, element_of_t<B>>, "all_reduce: both buffers need one element type");
    return reduction(detail::view_of(in), detail::view_of(out), op, element_of_t<B>{});
  }

  friend bool operator==(const communicator& a, const communicator& b) noexcept {
    return a.state_.get() == b.state_.get();
  }

 private:
  detail::call message(detail::operation_kind kind, detail::buffer_view data, int peer, int tag) const {
    detail::call what(kind, state_);
    what.in = what.out = data;
    what.peer = peer;
    what.tag = tag;
    return what;
  }
  template <class Op, class T>
  operation<> reduction(detail::buffer_view in, detail::buffer_view out, const Op& op, T) const {
    static_assert(detail::reduces<Op, T>(),
                  "tutti: this reduction does not fit this element type: sum and product need numbers, avg floating "
                  "point, band/bor/bxor integers or bool; for other types pass a callable T(T, T)");
    detail::call what(detail::operation_kind::all_reduce, state_);
    what.in = in;
    what.out = out;
    what.op = detail::make_reduction<Op, T>(op);
    return operation<>(std::move(what));
  }

  detail::communicator_ref state_;
};

}  // namespace tutti
