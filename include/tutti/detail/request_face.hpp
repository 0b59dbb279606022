// SPDX-License-Identifier: Apache-2.0
// The slots that requests live in, and the adapter from requests to Asio's completion tokens.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/operation_state.hpp>
#include <tutti/detail/token_face.hpp>

#include <memory>
#include <utility>

namespace tutti::detail {

struct request_slot;
// Starts an operation in a slot from this thread's pool: no heap allocation in steady state.
request_slot* start_request(call&& what);
// Starts a message, constructing its call in the slot.
request_slot* start_request(operation_kind kind, const communicator_ref& comm, const buffer_view& data,
                            int peer, int tag, call_site where);
bool request_done(const request_slot& slot) noexcept;
operation_state& request_state(request_slot& slot) noexcept;
// Sets the function to call once when the operation completes: f(owner). Requires a slot that is not done.
// Returns false if another coroutine already waits.
bool set_request_waiter(request_slot& slot, void (*f)(void*) noexcept, void* owner) noexcept;
// Removes `owner` as the waiter, if it is.
void clear_request_waiter(request_slot& slot, const void* owner) noexcept;
// Cancels a pending operation and returns the slot to the pool. On return the library holds no pointer to the
// buffer.
void drop_request(request_slot* slot) noexcept;
void cancel_request(request_slot& slot) noexcept;

struct request_dropper {
  void operator()(request_slot* slot) const noexcept { drop_request(slot); }
};
// An owner rather than a raw pointer for completion tokens: one that never starts must free the buffer too.
using owned_request_slot = std::unique_ptr<request_slot, request_dropper>;

class started_operation {
 public:
  explicit started_operation(owned_request_slot slot) noexcept : slot_(std::move(slot)) {}
  operation_state& state() noexcept { return request_state(*slot_); }
  request_slot& slot() noexcept { return *slot_; }

 private:
  owned_request_slot slot_;
};

// Passes the result of a started operation to a completion handler.
template <class T, class Handler>
void await_by_handler(owned_request_slot slot, Handler&& handler) {
  using kept = kept_handler<T, Handler, started_operation>;
  kept* const self = kept::make(std::move(slot), std::move(handler));
  operation_state& state = self->state();
  const auto done = [](void* k) noexcept { static_cast<kept*>(k)->finish(); };
  set_request_waiter(self->slot(), done, self);
  if (!request_done(self->slot())) {
    self->let_cancel();
  } else if (!complete_later(state)) {
    return post_to_loop(state, done, self);
  }
  self->join();
}

}  // namespace tutti::detail
