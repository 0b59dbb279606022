// SPDX-License-Identifier: Apache-2.0
#include "base/heap_use.hpp"
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"
#include "flight/recorder.hpp"
#include "flight/snapshot.hpp"

#include <fmt/format.h>

#include <string_view>
#include <tutti/counters.hpp>
#include <tutti/detail/operation_state.hpp>

namespace tutti {

counters counters_of(const communicator& c) {
  counters n;
  const comm::communicator_state* const state = comm::living_state_of(c);
  if (state == nullptr) return n;
  const p2p::endpoint_counters messages = state->endpoint().counters();
  n.sends = messages.sends;
  n.receives = messages.receives;
  n.eager = messages.eager;
  n.rendezvous = messages.rendezvous;
  n.fetched = messages.fetched;
  n.unexpected = messages.unexpected;
  n.corrupt_frames = messages.corrupt_frames;
  const core::loop& loop = state->loop();
  n.turns = loop.counters().turns;
  n.parks = loop.counters().parks;
  n.stalls = loop.stalls().stalls;
  n.longest_stall = loop.stalls().longest;
  const base::heap_use& heap = base::heap_use_of_this_thread();
  n.allocations = heap.blocks;
  n.allocated_bytes = heap.bytes;
  return n;
}

std::vector<peer_counters> peer_counters_of(const communicator& c) {
  std::vector<peer_counters> all;
  comm::communicator_state* const state = comm::living_state_of(c);
  if (state == nullptr) return all;
  const int size = state->home().info().size;
  for (int rank = 0; rank < size; ++rank) {
    const p2p::peer_counters& n = state->endpoint().peers()[rank].counters;
    transport::link_counters way;
    if (const transport::link* const l = comm::world_of(*state).made_link(rank)) way = l->counters;
    if (n.sends + n.receives + way.retries == 0) continue;
    all.push_back({.rank = rank,
                   .sends = n.sends,
                   .bytes_sent = n.bytes_sent,
                   .receives = n.receives,
                   .bytes_received = n.bytes_received,
                   .without_credit = n.without_credit,
                   .stalls = way.stalls,
                   .retries = way.retries,
                   .transport = comm::world_of(*state).transport_to(rank)});
  }
  return all;
}

std::vector<operation_counters> operation_counters_of(const communicator& c) {
  std::vector<operation_counters> all;
  comm::communicator_state* const state = comm::living_state_of(c);
  if (state == nullptr) return all;
  const flight::time_map times(state->recorder().memory().head());
  const auto& by_kind = state->recorder().by_kind();
  for (std::size_t kind = 0; kind < by_kind.size(); ++kind) {
    if (by_kind[kind].calls == 0) continue;
    all.push_back({.name = detail::name_of(static_cast<detail::operation_kind>(kind)),
                   .calls = by_kind[kind].calls,
                   .waited = std::chrono::nanoseconds(times.duration_ns(by_kind[kind].waited))});
  }
  return all;
}

std::string prometheus_text(const communicator& c) {
  comm::communicator_state* const state = comm::living_state_of(c);
  if (state == nullptr) return {};
  const counters n = counters_of(c);
  const std::string rank = fmt::format("rank=\"{}\"", state->home().info().rank);
  std::string text;
  // Writes the description of a metric. Returns a function that writes a line for a set of labels.
  const auto metric = [&text](std::string_view name, std::string_view type, std::string_view help) {
    text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
    return [&text, name](const std::string& labels, auto value) {
      text += fmt::format("{}{{{}}} {}\n", name, labels, value);
    };
  };
  const auto one = [&](std::string_view name, std::string_view help, auto value) {
    metric(name, "counter", help)(rank, value);
  };
  one("tutti_sends_total", "Messages sent.", n.sends);
  one("tutti_receives_total", "Messages received.", n.receives);
  one("tutti_eager_total", "Messages sent with their first frame.", n.eager);
  one("tutti_rendezvous_total", "Messages sent by rendezvous.", n.rendezvous);
  one("tutti_fetched_total", "Messages read from the memory of their sender.", n.fetched);
  one("tutti_unexpected_total", "Messages that came before their receive.", n.unexpected);
  one("tutti_corrupt_frames_total", "Frames that were damaged on the way.", n.corrupt_frames);
  one("tutti_turns_total", "Turns of the loop.", n.turns);
  one("tutti_parks_total", "Times that the loop slept.", n.parks);
  one("tutti_stalls_total", "Computations of 10 ms or more on the loop thread.", n.stalls);
  using seconds = std::chrono::duration<double>;
  metric("tutti_longest_stall_seconds", "gauge", "The longest computation on the loop thread.")(
      rank, seconds(n.longest_stall).count());

  one("tutti_allocations_total", "Blocks that the library's pools took from the heap.", n.allocations);
  one("tutti_allocated_bytes_total", "Bytes of these.", n.allocated_bytes);

  const std::vector<peer_counters> peers = peer_counters_of(c);
  const auto of_peers = [&](std::string_view name, std::string_view help,
                            std::uint64_t peer_counters::* what) {
    const auto line = metric(name, "counter", help);
    for (const peer_counters& p : peers) line(fmt::format("{},peer=\"{}\"", rank, p.rank), p.*what);
  };
  of_peers("tutti_peer_sends_total", "Messages sent to a rank.", &peer_counters::sends);
  of_peers("tutti_peer_sent_bytes_total", "Bytes sent to a rank.", &peer_counters::bytes_sent);
  of_peers("tutti_peer_receives_total", "Messages received from a rank.", &peer_counters::receives);
  of_peers("tutti_peer_received_bytes_total", "Bytes received from a rank.", &peer_counters::bytes_received);
  of_peers("tutti_peer_without_credit_total", "Sends that waited for their receive for want of credit.",
           &peer_counters::without_credit);
  of_peers("tutti_peer_stalls_total", "Times that frames to a rank waited for room.", &peer_counters::stalls);
  of_peers("tutti_peer_connect_retries_total", "Attempts to connect to a rank after one that had failed.",
           &peer_counters::retries);

  const std::vector<operation_counters> operations = operation_counters_of(c);
  const auto label = [&](const operation_counters& o) {
    return fmt::format("{},operation=\"{}\"", rank, o.name);
  };
  const auto calls = metric("tutti_operations_total", "counter", "Calls of an operation.");
  for (const operation_counters& o : operations) calls(label(o), o.calls);
  const auto waited = metric("tutti_operation_seconds_total", "counter", "Time from calls to their ends.");
  for (const operation_counters& o : operations) waited(label(o), seconds(o.waited).count());
  return text;
}

}  // namespace tutti
