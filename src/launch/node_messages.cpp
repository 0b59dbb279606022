// SPDX-License-Identifier: Apache-2.0
#include "launch/node_messages.hpp"

#include "base/fields.hpp"

// The last enumerators of what messages contain (base/fields.hpp), in the namespaces where they are looked for.

namespace tutti::base {
constexpr auto highest(process_state) { return process_state::gone; }
}  // namespace tutti::base

namespace tutti::bootstrap {
constexpr auto highest(quorum) { return quorum::majority; }
}  // namespace tutti::bootstrap

namespace tutti::flight {
constexpr auto highest(state) { return state::cancelled; }
constexpr auto highest(phase) { return phase::failed; }
}  // namespace tutti::flight

namespace tutti::launch {

constexpr auto highest(outcome::exception) { return outcome::exception::of_peer; }
constexpr auto highest(failure_policy) { return failure_policy::restart_all; }
constexpr auto highest(stop_wanted::reason) { return stop_wanted::reason::cannot_start; }

namespace {

// A launcher's first message: the version increases when the meaning of any message changes.
struct versioned_hello {
  std::uint16_t version = 8;
  hello who;
};

constexpr const char* refusal =
    "the launcher of another node sent what this one does not understand: use the same version of tutti-run "
    "on all nodes";

}  // namespace

std::string encode(const hello& message) { return base::to_bytes(versioned_hello{.who = message}); }
std::string encode(const command& message) { return base::to_bytes(message); }
std::string encode(const event& message) { return base::to_bytes(message); }

hello decode_hello(std::string_view message) {
  versioned_hello m = base::from_bytes<versioned_hello>(message, refusal);
  if (m.version != versioned_hello().version) throw error(errc::protocol, refusal);
  return std::move(m.who);
}

command decode_command(std::string_view message) { return base::from_bytes<command>(message, refusal); }
event decode_event(std::string_view message) { return base::from_bytes<event>(message, refusal); }

}  // namespace tutti::launch
