// SPDX-License-Identifier: Apache-2.0
#include "flight/wait_graph.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <tutti/detail/operation_kind.hpp>
#include <tutti/status.hpp>

namespace tutti::flight {
namespace {

using detail::operation_kind;

operation_kind kind_of(const operation_snapshot& o) { return static_cast<operation_kind>(o.kind); }
bool is_message(const operation_snapshot& o) { return kind_of(o) <= operation_kind::probe; }
bool same_collective(const operation_snapshot& a, const operation_snapshot& b) {
  return a.communicator == b.communicator && a.sequence == b.sequence;
}

// Numbers start again after 2^31.
bool has_called(std::uint32_t last, std::uint32_t sequence) { return last - sequence < 0x40000000U; }

}  // namespace

rank_condition condition_of(const rank_snapshot& r) {
  if (!r.end.empty() || r.thread == base::process_state::gone)
    return r.at == phase::left && r.end.empty() ? rank_condition::left : rank_condition::gone;
  if (r.at == phase::none) return rank_condition::not_there;
  if (r.at == phase::left) return rank_condition::left;
  if (r.at == phase::failed) return rank_condition::failed;
  if (r.thread == base::process_state::stopped) return rank_condition::stopped;
  if (r.asleep_ns == 0 && r.now_ns - r.turned_ns > longest_turn_ns)
    return r.thread == base::process_state::sleeps ? rank_condition::blocked : rank_condition::computing;
  if (r.asleep_ns != 0 && r.now_ns - r.asleep_ns > longest_turn_ns && r.thread == base::process_state::runs)
    return rank_condition::in_handler;
  return r.at == phase::joining ? rank_condition::joining : rank_condition::working;
}

wait_graph::wait_graph(const std::vector<rank_snapshot>& ranks) {
  for (const rank_snapshot& r : ranks) {
    by_rank_[r.rank] = &r;
    for (const communicator_snapshot& c : r.communicators) world_ranks_.try_emplace({c.id, c.rank}, r.rank);
  }
  // Finds ranks that have not called what others are in.
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const rank_snapshot& r : ranks)
    for (const operation_snapshot& o : r.pending) {
      if (is_message(o) || !seen.emplace(o.communicator, o.sequence).second) continue;
      missing_ranks m{&o, &r, {}};
      for (const rank_snapshot& other : ranks) {
        const communicator_snapshot* const c = other.communicator(o.communicator);
        // Every rank is a member of the world, also one that has not come yet, or has gone.
        if (c == nullptr ? o.communicator == 0 : !has_called(c->last, o.sequence))
          m.ranks.push_back(other.rank);
      }
      std::sort(m.ranks.begin(), m.ranks.end());
      if (!m.ranks.empty()) missing_.push_back(std::move(m));
    }
  for (const rank_snapshot& r : ranks) {
    std::vector<edge>& edges = edges_[r.rank];
    if (condition_of(r) != rank_condition::working || r.compute_running > 0) continue;
    for (const operation_snapshot& o : r.pending)
      for (const int to : waited_for(r, o))
        if (to != r.rank && !works_in(to, o)) edges.push_back({to, &o});
  }
}

const std::vector<wait_graph::edge>& wait_graph::edges_of(int rank) const {
  static const std::vector<edge> none;
  const auto found = edges_.find(rank);
  return found == edges_.end() ? none : found->second;
}

const rank_snapshot* wait_graph::find(int rank) const {
  const auto found = by_rank_.find(rank);
  return found == by_rank_.end() ? nullptr : found->second;
}

int wait_graph::world_rank(std::uint32_t communicator, int rank) const {
  if (rank < 0) return -1;
  if (communicator == 0) return rank;
  const auto found = world_ranks_.find({communicator, rank});
  return found == world_ranks_.end() ? -1 : found->second;
}

bool wait_graph::has_met(const rank_snapshot& of, const operation_snapshot& o) const {
  if (!is_message(o)) return false;
  const rank_snapshot* const other = find(world_rank(o.communicator, o.peer));
  if (other == nullptr) return false;
  const bool sends = kind_of(o) == operation_kind::send;
  return std::any_of(other->pending.begin(), other->pending.end(), [&](const operation_snapshot& p) {
    if (!is_message(p) || p.communicator != o.communicator) return false;
    if (kind_of(p) != (sends ? operation_kind::receive : operation_kind::send)) return false;
    const operation_snapshot& receive = sends ? p : o;
    const operation_snapshot& send = sends ? o : p;
    return (p.peer == any_source || world_rank(p.communicator, p.peer) == of.rank) &&
           (receive.tag == any_tag || receive.tag == send.tag);
  });
}

// Ranks in the same collective wait for each other by its nature, unless one of them cannot progress.
bool wait_graph::works_in(int rank, const operation_snapshot& o) const {
  const rank_snapshot* const r = find(rank);
  return !is_message(o) && r != nullptr && condition_of(*r) == rank_condition::working &&
         std::ranges::any_of(r->pending, [&](const operation_snapshot& p) { return same_collective(p, o); });
}

std::vector<int> wait_graph::waited_for(const rank_snapshot& of, const operation_snapshot& o) const {
  if (is_message(o)) {
    const int peer = world_rank(o.communicator, o.peer);
    if (peer < 0 || has_met(of, o)) return {};
    return {peer};
  }
  for (const missing_ranks& m : missing_)
    if (same_collective(*m.operation, o)) return m.ranks;
  if (o.waits_for >= 0) return {o.waits_for};
  return {};
}

std::vector<std::vector<int>> wait_graph::circles() const {
  std::vector<std::vector<int>> found;
  std::set<int> done;
  std::vector<int> way;  // from where the search began
  // Depth first; returns true once it has come to a rank that is on the way.
  const auto search = [&](const auto& self, int rank) -> bool {
    way.push_back(rank);
    for (const edge& e : edges_of(rank)) {
      if (const auto first = std::ranges::find(way, e.to); first != way.end()) {
        std::vector<int> circle(first, way.end());
        std::ranges::rotate(circle, std::ranges::min_element(circle));
        found.push_back(std::move(circle));
        done.insert(way.begin(), way.end());
        return true;
      }
      if (!done.contains(e.to) && self(self, e.to)) return true;
    }
    done.insert(rank);
    way.pop_back();
    return false;
  };
  for (const auto& [start, edges] : edges_) {
    way.clear();
    if (!done.contains(start)) search(search, start);
  }
  return found;
}

std::vector<std::pair<int, std::vector<int>>> wait_graph::culprits() const {
  std::map<int, std::vector<int>> waiters;  // by the rank that they ultimately wait for
  for (const auto& [start, edges] : edges_) {
    if (edges.empty()) continue;
    std::set<int> seen{start};
    std::vector<int> open{start};
    while (!open.empty()) {
      const int rank = open.back();
      open.pop_back();
      const std::vector<edge>& next = edges_of(rank);
      if (next.empty()) waiters[rank].push_back(start);
      for (const edge& e : next)
        if (seen.insert(e.to).second) open.push_back(e.to);
    }
  }
  std::vector<std::pair<int, std::vector<int>>> all(waiters.begin(), waiters.end());
  std::ranges::sort(all, std::greater(),
                    [](const auto& one) { return std::pair(one.second.size(), -one.first); });
  return all;
}

}  // namespace tutti::flight
