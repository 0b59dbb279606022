// SPDX-License-Identifier: Apache-2.0
#include "ops/messages.hpp"

#include "ops/arguments.hpp"
#include "ops/backend.hpp"

#include <fmt/format.h>

#include <new>

namespace tutti::ops {

using comm::communicator_state;
using detail::call;
using detail::operation_kind;
using detail::operation_state;

std::string why_nothing_came(const communicator_state& c, const call& what) {
  if (what.kind == operation_kind::send) return ": no receive that matches was posted there";
  const bool on_device = what.part && what.part.get()->on_device();
  const int source = what.peer == any_source ? any_source : c.world_rank(what.peer);
  status other;
  const auto waits = [&](bool of_device) {
    return c.endpoint().waiting_message(of_device ? c.rts_context() : c.message_context(), source, other);
  };
  if (waits(!on_device) && (what.tag == any_tag || what.tag == other.tag))
    return fmt::format(
        ": no message that matches has come, but one from memory of {} from {} with tag {}: receive it {} a "
        "stream",
        on_device ? "the host" : "a device", c.describe(c.rank_of(other.source)), other.tag,
        on_device ? "without" : "with");
  if (waits(on_device))
    return fmt::format(
        ": no message that matches has come, but one{} from {} with tag {} waits for its receive; which tag "
        "is meant?",
        on_device ? "" : fmt::format(" of {} bytes", other.bytes), c.describe(c.rank_of(other.source)),
        other.tag);
  return ": no message that matches has come; does the other side send with this tag, on this communicator?";
}

namespace {

void say_sent(operation_state& state) noexcept {
  const call& what = state.what();
  state.set_result(status{what.comm->rank(), what.tag, what.in.bytes()});
}

[[gnu::noinline]] void tell_failure(operation_state& state, core::completion& of) noexcept {
  const call& what = state.what();
  state.fail(of.failure(), fmt::format("{}: {}", title(*what.comm, what), of.take_text()));
}

template <class Transfer>
struct transfer_operation_state {
  operation_state& operation;
  Transfer transfer;
  flight::handle record;

  explicit transfer_operation_state(operation_state& s) noexcept : operation(s) {
    transfer.user = this;
    transfer.on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<transfer_operation_state*>(a.user);
      self.operation.what().comm->recorder().end(self.record, state_of(a.failure()));
      self.finish().complete();
    };
    transfer.on_expire = [](core::completion& a) noexcept {
      auto& self = *static_cast<transfer_operation_state*>(a.user);
      expire(self, self.operation.what());
    };
  }
  void end(errc why, const std::string& text) noexcept {
    operation.what().comm->endpoint().fail(transfer, why, text);
  }
  // Moves the outcome into the operation and destroys the operation state.
  operation_state& finish() noexcept {
    operation_state& state = operation;
    const communicator_state& c = *state.what().comm;
    if (transfer.failure() != errc::success) [[unlikely]] {
      tell_failure(state, transfer);
    } else if constexpr (std::is_same_v<Transfer, p2p::send>) {
      say_sent(state);
    } else {
      status result = transfer.result;
      result.source = state.what().peer == any_source ? c.rank_of(result.source) : state.what().peer;
      state.set_result(result);
    }
    state.set_running(nullptr);
    this->~transfer_operation_state();
    return state;
  }
};

// Recorded after the start, so that the message leaves first.
template <class Transfer, class Start>
bool start_on(operation_state& state, Start start) noexcept {
  static_assert(sizeof(transfer_operation_state<Transfer>) <= operation_state::running_bytes);
  communicator_state& c = *state.what().comm;
  auto* made = new (state.running_storage()) transfer_operation_state<Transfer>(state);
  state.set_running(made);
  if (start(made->transfer)) {
    c.recorder().note(facts_of(c, state.what(), 0), state_of(made->transfer.failure()));
    made->finish();
    return true;
  }
  const flight::recorder::waiting noted = c.recorder().begin_waiting(facts_of(c, state.what(), 0));
  made->record = noted.at;
  if constexpr (std::is_same_v<Transfer, p2p::receive>) made->transfer.record = made->record;
  if (state.what().peer == any_source) c.expect_anyone();
  c.watch(made->transfer, state.has_deadline(), noted.cycles);
  return false;
}

// Calls f with the operation state of its kind.
template <class F>
void with_operation_state(operation_kind kind, void* which, F f) noexcept {
  if (kind == operation_kind::send) return f(*static_cast<transfer_operation_state<p2p::send>*>(which));
  if (kind == operation_kind::probe) return f(*static_cast<transfer_operation_state<p2p::probe>*>(which));
  f(*static_cast<transfer_operation_state<p2p::receive>*>(which));
}

}  // namespace

bool start_message(operation_state& state) noexcept {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  const int source = what.peer == any_source ? any_source : c.world_rank(what.peer);
  if (what.kind == operation_kind::receive)
    return start_on<p2p::receive>(state, [&](p2p::receive& r) {
      r.recorder = &c.recorder();
      return c.endpoint().start(r, c.message_context(), source, what.tag, what.out.data, what.out.bytes(),
                                p2p::point_to_point);
    });
  if (what.kind == operation_kind::probe)
    return start_on<p2p::probe>(
        state, [&](p2p::probe& p) { return c.endpoint().start(p, c.message_context(), source, what.tag); });
  if (c.endpoint().send_now(c.message_context(), source, what.tag, what.in.data, what.in.bytes())) {
    c.recorder().note(facts_of(c, what, 0), flight::state::done);
    say_sent(state);
    return true;
  }
  return start_on<p2p::send>(state, [&](p2p::send& s) {
    return c.endpoint().start(s, c.message_context(), source, what.tag, what.in.data, what.in.bytes(),
                              p2p::point_to_point);
  });
}

namespace {

void stop_message(operation_state& state, errc why, const std::string& text) noexcept {
  const call& what = state.what();
  with_operation_state(what.kind, state.running(), [&](auto& m) {
    if (why != errc::timed_out) return m.end(why, text);
    m.end(why, text + why_nothing_came(*what.comm, what));
  });
}

void abandon_message(operation_state& state, void* which) noexcept {
  with_operation_state(state.what().kind, which, [&state](auto& m) {
    using state_type = std::remove_reference_t<decltype(m)>;
    communicator_state& c = *state.what().comm;
    if (!c.detached()) {
      c.recorder().end(m.record, flight::state::cancelled);
      c.endpoint().release(m.transfer);
    }
    // it may have ended with its runtime
    static_cast<base::list_hook<core::ready_tag>&>(m.transfer).unlink();
    m.~state_type();
  });
}

}  // namespace

const backend messages{start_message, stop_message, abandon_message};

}  // namespace tutti::ops
