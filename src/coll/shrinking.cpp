// SPDX-License-Identifier: Apache-2.0
// The operation state of shrink: from the operation to the agreement on who goes on, and to their new
// communicator.
#include "comm/agreement.hpp"
#include "comm/world.hpp"
#include "ops/arguments.hpp"
#include "ops/backend.hpp"

#include <fmt/format.h>

#include <new>

namespace tutti::coll {
namespace {

using comm::communicator_state;
using detail::operation_state;
using ops::put_on_record;
using ops::state_of;
using ops::title;

// "world/shrink12", from "world" and from "world/shrink5".
std::string shrunk_name(const std::string& old, std::uint32_t id) {
  constexpr std::string_view mark = "/shrink";
  const std::size_t at = old.rfind(mark);
  const bool again = at != std::string::npos && old.find('/', at + 1) == std::string::npos;
  return fmt::format("{}{}{}", again ? old.substr(0, at) : old, mark, id);
}

class shrink_operation_state final : public comm::agreement::caller {
 public:
  shrink_operation_state(operation_state& s, communicator_state& c) noexcept
      : operation_(s), comm_(c), record_(put_on_record(c, s.what(), 0)) {
    comm_.recorder().stays(record_);
    on_done = [](core::completion& a) noexcept {
      static_cast<shrink_operation_state&>(a).finish().complete();
    };
  }

  operation_state& finish() noexcept {
    operation_state& state = operation_;
    comm_.recorder().end(record_, state_of(failure()));
    if (failure() == errc::success) {
      comm_.add_failed(failed);
      // Made from what the old one was made from: it takes its place.
      communicator_state& made = comm_.of_world().make_communicator(
          id, comm_.parent() == comm_.id() ? id : comm_.parent(), shrunk_name(comm_.name(), id), members);
      state.set_made(detail::communicator_ref(&made));
    } else {
      state.fail(failure(), fmt::format("{}: {}", title(comm_, state.what()), take_text()));
    }
    state.set_running(nullptr);
    this->~shrink_operation_state();
    return state;
  }
  // Drops the outcome: this rank does not take it up.
  void drop() noexcept {
    comm_.recorder().end(record_, flight::state::cancelled);
    comm_.of_world().survivors().abandon(*this, fmt::format("shrink on {} was dropped before its end on {}",
                                                            comm_.name(), comm_.describe(comm_.rank())));
  }

 private:
  operation_state& operation_;
  communicator_state& comm_;
  const flight::handle record_;
};
static_assert(sizeof(shrink_operation_state) <= operation_state::running_bytes);

bool start_shrink(operation_state& state) {
  communicator_state& c = *state.what().comm;
  const std::string who = fmt::format("{} has called shrink on {}", c.describe(c.rank()), c.name());
  if (c.dead_member().empty()) {
    c.fail(errc::cancelled, who, p2p::subject::other, true, p2p::extent::children);
  } else {
    // Names no rank but the dead one.
    c.fail(errc::peer_failed, fmt::format("{}; a member has called shrink on {}", c.dead_member(), c.name()),
           p2p::subject::other, true, p2p::extent::children, 0);
  }
  auto* const running = new (state.running_storage()) shrink_operation_state(state, c);
  state.set_running(running);
  c.of_world().survivors().join(c, *running, state.has_deadline());
  return false;
}

void stop_shrink(operation_state& state, errc why, const std::string& text) noexcept {
  communicator_state& c = *state.what().comm;
  auto& m = *static_cast<shrink_operation_state*>(state.running());
  c.of_world().survivors().give_up(
      m, why,
      fmt::format("shrink was {} on {}{}", why == errc::cancelled ? "cancelled" : "ended",
                  c.describe(c.rank()), text == "cancelled" ? "" : ": " + text));
}

void abandon_shrink(operation_state& state, void* which) noexcept {
  auto* const m = static_cast<shrink_operation_state*>(which);
  if (!state.what().comm->detached()) m->drop();
  static_cast<base::list_hook<core::ready_tag>&>(*m).unlink();  // it may have ended with its runtime
  m->~shrink_operation_state();
}

}  // namespace
}  // namespace tutti::coll

namespace tutti {
const ops::backend ops::repairs{coll::start_shrink, coll::stop_shrink, coll::abandon_shrink};
}
