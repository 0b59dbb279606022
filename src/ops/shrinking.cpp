// SPDX-License-Identifier: Apache-2.0
// shrink: from the operation to the agreement on who goes on, and to their new communicator.
#include "comm/agreement.hpp"
#include "comm/world.hpp"
#include "ops/arguments.hpp"
#include "ops/running_operation.hpp"

#include <fmt/format.h>

#include <new>

namespace tutti::ops {
namespace {

using comm::communicator_state;
using detail::operation_state;

// "world/shrink12", from "world" and from "world/shrink5".
std::string shrunk_name(const std::string& old, std::uint32_t id) {
  constexpr std::string_view mark = "/shrink";
  const std::size_t at = old.rfind(mark);
  const bool again = at != std::string::npos && old.find('/', at + 1) == std::string::npos;
  return fmt::format("{}{}{}", again ? old.substr(0, at) : old, mark, id);
}

class shrink_operation final : public comm::agreement::caller, public running_operation {
 public:
  explicit shrink_operation(operation_state& s) noexcept
      : running_operation(s),
        record_(comm().recorder().begin(facts_of(comm(), s.what(), 0), comm().recorder().now())) {
    on_done = [](core::completion& a) noexcept { static_cast<shrink_operation&>(a).finish().complete(); };
  }

  void stop(errc why, const std::string& text) noexcept override {
    comm::world_of(comm()).survivors().give_up(
        *this, why,
        fmt::format("shrink was {} on {}{}", why == errc::cancelled ? "cancelled" : "ended",
                    comm().group().describe(comm().rank()), text == "cancelled" ? "" : ": " + text));
  }
  void abandon() noexcept override {
    if (!comm().detached()) {
      comm().recorder().end(record_, flight::state::cancelled);
      comm::world_of(comm()).survivors().abandon(
          *this, fmt::format("shrink on {} was dropped before its end on {}", comm().group().name(),
                             comm().group().describe(comm().rank())));
    }
    static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();  // it may have ended with its runtime
    this->~shrink_operation();
  }

 private:
  operation_state& finish() noexcept {
    operation_state& state = operation_;
    comm().recorder().end(record_, state_of(failure()));
    if (failure() == errc::success) make();
    if (failure() != errc::success)
      state.fail(failure(), fmt::format("{}: {}", title(comm(), state.what()), take_text()));
    this->~shrink_operation();
    return state;
  }
  void make() noexcept {
    comm().failure().add_failed(failed);
    try {
      // Made from what the old one was made from: it takes its place.
      communicator_state& made = comm::world_of(comm()).make_agreed_communicator(
          {id, comm().numbers().is_child() ? comm().numbers().parent : id},
          shrunk_name(comm().group().name(), id), members);
      operation_.set_made(detail::communicator_ref(&made));
    } catch (const error& e) {
      set_failure(static_cast<errc>(e.code().value()), e.what());
    }
  }
  const flight::handle record_;
};
static_assert(sizeof(shrink_operation) <= operation_state::running_bytes);

}  // namespace

template <>
bool start<detail::family::repair>(operation_state& state) {
  communicator_state& c = *state.what().comm;
  const std::string who =
      fmt::format("{} has called shrink on {}", c.group().describe(c.rank()), c.group().name());
  if (c.failure().dead_member().empty()) {
    c.failure().fail(errc::cancelled, who, p2p::subject::other, true, p2p::extent::children);
  } else {
    // Names no rank but the dead one.
    c.failure().fail(
        errc::peer_failed,
        fmt::format("{}; a member has called shrink on {}", c.failure().dead_member(), c.group().name()),
        p2p::subject::other, true, p2p::extent::children);
  }
  auto* const running = new (state.running_storage()) shrink_operation(state);
  comm::world_of(c).survivors().join(c, *running, state.has_deadline());
  return false;
}

}  // namespace tutti::ops
