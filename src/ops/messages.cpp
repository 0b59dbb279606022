// SPDX-License-Identifier: Apache-2.0
// The operation states of send, receive and the probes: the endpoint's transfer state plus the way back to the
// operation. On device memory a coroutine of tutti::gpu carries them out.
#include "ops/arguments.hpp"
#include "ops/held_message.hpp"
#include "ops/running_operation.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace tutti::ops {
namespace {

using comm::communicator_state;
using detail::call;
using detail::operation_kind;
using detail::operation_state;

// What stands behind the text of a message that has timed out: what came in its place.
std::string why_nothing_came(const communicator_state& c, const call& what) {
  if (what.kind == operation_kind::send) return ": no receive that matches was posted there";
  const bool on_device = what.on_device();
  const int source = what.peer == any_source ? any_source : c.group().world_rank(what.peer);
  status other;
  const auto waits = [&](bool of_device) {
    return c.endpoint().waiting_message(of_device ? c.numbers().rts() : c.numbers().messages(), source,
                                        other);
  };
  if (waits(!on_device) && (what.tag == any_tag || what.tag == other.tag))
    return fmt::format(
        ": no message that matches has come, but one from memory of {} from {} with tag {}: receive it {} a "
        "stream",
        on_device ? "the host" : "a device", c.group().describe(c.group().rank_of(other.source)), other.tag,
        on_device ? "without" : "with");
  if (waits(on_device))
    return fmt::format(
        ": no message that matches has come, but one{} from {} with tag {} waits for its receive; which tag "
        "is meant?",
        on_device ? "" : fmt::format(" of {} bytes", other.bytes),
        c.group().describe(c.group().rank_of(other.source)), other.tag);
  return ": no message that matches has come; does the other side send with this tag, on this communicator?";
}

void say_sent(operation_state& state) noexcept {
  const call& what = state.what();
  state.set_result(status{what.comm->rank(), what.tag, what.in.bytes()});
}

[[gnu::noinline]] void tell_failure(operation_state& state, core::completion& of) noexcept {
  const call& what = state.what();
  state.fail(of.failure(), fmt::format("{}: {}", title(*what.comm, what), of.take_text()));
}

class running_message : public running_operation {
 public:
  void stop(errc why, const std::string& text) noexcept final {
    end(why, why == errc::timed_out ? text + why_nothing_came(comm(), operation_.what()) : text);
  }
  // Ends it: its communicator has failed, or it has taken longer than its timeout.
  void expire() noexcept {
    if (comm().failure().failed()) return end(comm().failure().why(), comm().failure().text());
    comm::report_hang(comm());
    stop(errc::timed_out, comm().pending().timeout_text());
  }

 protected:
  using running_operation::running_operation;
  ~running_message() = default;
  virtual void end(errc why, const std::string& text) noexcept = 0;
};

template <class Transfer>
class transfer_operation final : public running_message {
 public:
  explicit transfer_operation(operation_state& s) noexcept : running_message(s) {
    transfer.user = this;
    transfer.on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<transfer_operation*>(a.user);
      self.comm().recorder().end(self.record, state_of(a.failure()));
      self.finish().complete();
    };
    transfer.on_expire = [](core::completion& a) noexcept {
      static_cast<transfer_operation*>(a.user)->expire();
    };
  }
  void end(errc why, const std::string& text) noexcept override {
    comm().endpoint().fail(transfer, why, text);
  }
  void abandon() noexcept override {
    if (!comm().detached()) {
      comm().recorder().end(record, flight::state::cancelled);
      comm().endpoint().release(transfer);
    }
    // it may have ended with its runtime
    static_cast<base::list_hook<core::ready_tag>&>(transfer).unlink();
    this->~transfer_operation();
  }
  // Moves the outcome into the operation and destroys this.
  operation_state& finish() noexcept {
    operation_state& state = operation_;
    if (transfer.failure() != errc::success) [[unlikely]] {
      tell_failure(state, transfer);
    } else if constexpr (std::is_same_v<Transfer, p2p::send>) {
      say_sent(state);
    } else {
      if constexpr (std::is_same_v<Transfer, p2p::probe>)
        if (transfer.taken != nullptr) held_by(state.what())->hold(*std::exchange(transfer.taken, nullptr));
      status result = transfer.result;
      result.source =
          state.what().peer == any_source ? comm().group().rank_of(result.source) : state.what().peer;
      state.set_result(result);
    }
    this->~transfer_operation();
    return state;
  }

  Transfer transfer;
  flight::handle record;
};

// Recorded after the start, so that the message leaves first.
template <class Transfer, class Start>
bool start_on(operation_state& state, Start start) noexcept {
  static_assert(sizeof(transfer_operation<Transfer>) <= operation_state::running_bytes);
  communicator_state& c = *state.what().comm;
  auto* const made = new (state.running_storage()) transfer_operation<Transfer>(state);
  if (start(made->transfer)) {
    c.recorder().note(facts_of(c, state.what(), 0), state_of(made->transfer.failure()));
    made->finish();
    return true;
  }
  const std::uint64_t now = c.recorder().now();
  made->record = c.recorder().begin(facts_of(c, state.what(), 0), now);
  if constexpr (std::is_same_v<Transfer, p2p::receive>) made->transfer.record = made->record;
  if (state.what().peer == any_source) c.pending().expect_anyone();
  c.pending().watch(made->transfer, state.has_deadline(), now);
  return false;
}

struct recorded_completion : core::completion {
  flight::handle record{};  // its place in the recording
};

class device_message final : public task_operation<device_message, recorded_completion, running_message> {
 public:
  explicit device_message(operation_state& s) noexcept : task_operation(s, 0) {
    on_expire = [](core::completion& a) noexcept { static_cast<device_message&>(a).expire(); };
  }
  void end(errc why, const std::string& text) noexcept override {
    if (!std::exchange(ended_, true)) stop_body(why, text);
  }
  void report() noexcept {
    if (failure() != errc::success) tell_failure(operation_, *this);
  }
  void abandon() noexcept override {
    leave();
    if (!comm().detached()) comm().recorder().end(record, flight::state::cancelled);
    this->~device_message();
  }
};
static_assert(sizeof(device_message) <= operation_state::running_bytes);

bool start_matched_probe(operation_state& state) {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  state.set_part(detail::part_ref(new held_message(what.comm)));
  const int source = what.peer == any_source ? any_source : c.group().world_rank(what.peer);
  return start_on<p2p::probe>(state, [&](p2p::probe& p) {
    p.takes = true;
    return c.endpoint().start(p, c.numbers().messages(), source, what.tag);
  });
}

bool start_matched_receive(operation_state& state, held_message& held) noexcept {
  const call& what = state.what();
  return start_on<p2p::receive>(state, [&](p2p::receive& r) {
    r.recorder = &what.comm->recorder();
    return what.comm->endpoint().start(r, held.take(), what.out.data, what.out.bytes());
  });
}

}  // namespace

template <>
bool start<detail::family::message>(operation_state& state) {
  const call& what = state.what();
  if (what.kind == operation_kind::matched_probe) return start_matched_probe(state);
  if (held_message* const held = held_by(what)) return start_matched_receive(state, *held);
  if (!state.on_device()) return start_message(state);
  auto* const made = new (state.running_storage()) device_message(state);
  if (!made->start([&] { return detail::executor_part_of(state.what()).execute(state); })) return false;
  made->finish();
  return true;
}

bool start_message(operation_state& state) noexcept {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  const int source = what.peer == any_source ? any_source : c.group().world_rank(what.peer);
  if (what.kind == operation_kind::receive)
    return start_on<p2p::receive>(state, [&](p2p::receive& r) {
      r.recorder = &c.recorder();
      return c.endpoint().start(r, c.numbers().messages(), source, what.tag, what.out.data, what.out.bytes(),
                                p2p::point_to_point);
    });
  if (what.kind == operation_kind::probe)
    return start_on<p2p::probe>(state, [&](p2p::probe& p) {
      return c.endpoint().start(p, c.numbers().messages(), source, what.tag);
    });
  if (c.endpoint().send_now(c.numbers().messages(), source, what.tag, what.in.data, what.in.bytes())) {
    c.recorder().note(facts_of(c, what, 0), flight::state::done);
    say_sent(state);
    return true;
  }
  return start_on<p2p::send>(state, [&](p2p::send& s) {
    return c.endpoint().start(s, c.numbers().messages(), source, what.tag, what.in.data, what.in.bytes(),
                              p2p::point_to_point);
  });
}

}  // namespace tutti::ops
