// SPDX-License-Identifier: Apache-2.0
// matched_message: a message that only its holder can receive.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/operation.hpp>
#include <tutti/status.hpp>

#include <utility>

namespace tutti {
namespace detail {
[[noreturn]] void refuse_empty_message();
}

// A message that communicator::matched_probe has taken out of its queue. No receive or probe of this rank finds
// it there. Move-only; keeps its communicator alive. Use and drop it on the loop thread.
//
// Dropped before recv has started, the message is queued again in its place: a receive that was posted meanwhile
// gets it. After the end of the runtime, dropping it does nothing.
class [[nodiscard("dropping a matched message queues it again")]] matched_message {
 public:
  // Holds no message.
  matched_message() noexcept = default;
  matched_message(detail::communicator_ref comm, const tutti::status& from, detail::part_ref message) noexcept
      : comm_(std::move(comm)), status_(from), message_(std::move(message)) {}
  matched_message(matched_message&&) noexcept = default;
  matched_message& operator=(matched_message&&) noexcept = default;

  // Source, tag and length of the message; they stay after recv.
  const tutti::status& status() const noexcept { return status_; }

  // Receives the message into `data`, as communicator::recv does. The operation holds the message from its start.
  // Completes: when the whole message is in `data`.
  // Errors: errc::invalid_argument if recv has been started before. errc::peer_failed or errc::peer_left if the
  // sender has gone before its message had come whole, errc::cancelled if it has taken the message back.
  // errc::truncated as communicator::recv; the message is then lost. After any other error of the arguments,
  // this still holds the message. Throws errc::invalid_argument if there never was a message.
  // Cancellation: loses no message. It is queued again in its place, and this is empty.
  template <class B>
  operation<tutti::status> recv(B&& data, call_site where = call_site::current()) {
    static_assert(WritableBuffer<B>,
                  "recv needs a writable buffer that outlives the operation: an lvalue, or a span");
    static_assert(!detail::of_device<B>,
                  "tutti: a matched message is received into memory of the host: give a std::span of it. For "
                  "devices and tensors use probe and communicator::recv");
    if (!message_) detail::refuse_empty_message();
    detail::call what(detail::operation_kind::receive, comm_, detail::view_of(data), status_.source,
                      status_.tag, where);
    what.part = message_;
    return operation<tutti::status>(std::move(what));
  }

 private:
  detail::communicator_ref comm_;
  tutti::status status_;
  detail::part_ref message_;  // ops::held_message
};

}  // namespace tutti
