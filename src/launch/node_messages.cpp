// SPDX-License-Identifier: Apache-2.0
#include "launch/node_messages.hpp"

#include <tuple>

#include "base/fields.hpp"

// The fields of each kind of message, and of what messages contain (base/fields.hpp), in the namespaces where
// they are looked for.

namespace tutti::base {
constexpr auto highest(process_state) { return process_state::gone; }
}  // namespace tutti::base

namespace tutti::flight {

using base::maybe_const;

constexpr auto highest(state) { return state::cancelled; }
constexpr auto highest(phase) { return phase::failed; }

auto fields(maybe_const<operation_snapshot> auto& m) {
  return std::tie(m.number, m.kind, m.how, m.start_ns, m.end_ns, m.bytes, m.moved, m.communicator, m.sequence,
                  m.peer, m.tag, m.waits_for, m.text, m.line);
}

auto fields(maybe_const<communicator_snapshot> auto& m) {
  return std::tie(m.id, m.rank, m.size, m.last, m.failed, m.name);
}

auto fields(maybe_const<rank_snapshot> auto& m) {
  return std::tie(m.rank, m.world_size, m.pid, m.at, m.thread, m.now_ns, m.since_ns, m.turned_ns, m.asleep_ns,
                  m.started, m.ended, m.compute_running, m.host, m.failure_text, m.end, m.pending, m.recent,
                  m.doing, m.communicators);
}

}  // namespace tutti::flight

namespace tutti::launch {

using base::maybe_const;

constexpr auto highest(outcome::exception) { return outcome::exception::of_peer; }
constexpr auto highest(failure_policy) { return failure_policy::restart_all; }
constexpr auto highest(stop_wanted::reason) { return stop_wanted::reason::cannot_start; }

auto fields(maybe_const<hello> auto& m) { return std::tie(m.nodes, m.node, m.ranks, m.host, m.pid); }

auto fields(maybe_const<outcome> auto& m) {
  return std::tie(m.rank, m.pid, m.exit_code, m.signal, m.core_dumped, m.exec_error, m.after, m.asked_with,
                  m.killed, m.thrown, m.thrown_after);
}

auto fields(maybe_const<start_ranks> auto& m) {
  return std::tie(m.job_id, m.restart_count, m.max_restarts, m.world_size, m.first_rank, m.store_port, m.node,
                  m.newcomer, m.on_failure, m.grace, m.notice);
}

auto fields(maybe_const<stop_ranks> auto& m) { return std::tie(m.signal); }
auto fields(maybe_const<kill_ranks> auto&) { return std::tie(); }
auto fields(maybe_const<tell_records> auto&) { return std::tie(); }
auto fields(maybe_const<rank_stopped> auto& m) { return std::tie(m.rank, m.pid, m.stopped); }
auto fields(maybe_const<clock_told> auto& m) { return std::tie(m.asked_ns, m.clock_ns); }
auto fields(maybe_const<clock_asked> auto& m) { return std::tie(m.asked_ns); }
auto fields(maybe_const<job_over> auto& m) { return std::tie(m.exit_code, m.report); }
auto fields(maybe_const<rank_failed> auto& m) { return std::tie(m.end, m.others_run, m.restart); }
auto fields(maybe_const<process_ended> auto& m) { return std::tie(m.rank, m.start, m.well, m.again); }
auto fields(maybe_const<stop_wanted> auto& m) { return std::tie(m.why, m.signal, m.text); }
auto fields(maybe_const<kill_wanted> auto&) { return std::tie(); }
auto fields(maybe_const<ranks_ended> auto& m) { return std::tie(m.ends, m.last_lines, m.last_operations); }
auto fields(maybe_const<explanation_wanted> auto&) { return std::tie(); }
auto fields(maybe_const<records_told> auto& m) { return std::tie(m.ranks, m.last); }

namespace {

// A launcher's first message: the version increases when the meaning of any message changes.
struct versioned_hello {
  std::uint16_t version = 5;
  hello who;
};
auto fields(maybe_const<versioned_hello> auto& m) { return std::tie(m.version, m.who); }

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
