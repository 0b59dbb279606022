// SPDX-License-Identifier: Apache-2.0
#include "flight/explanation.hpp"

#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <tutti/extend/operation_kind.hpp>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::flight {
namespace {

using base::ranks_text;
using detail::operation_kind;

constexpr std::size_t most_shown = 4;  // pending operations of a rank
constexpr std::size_t most_circles = 4;
constexpr std::size_t most_culprits = 4;
constexpr std::size_t most_missing = 8;

operation_kind kind_of(const operation_snapshot& o) { return static_cast<operation_kind>(o.kind); }
bool is_one_sided(const operation_snapshot& o) {
  return detail::is_known(kind_of(o)) && detail::row_of(kind_of(o)).of == detail::family::one_sided;
}
// Its peer is what it waits for.
bool is_pairwise(const operation_snapshot& o) {
  return detail::is_known(kind_of(o)) && detail::is_pairwise(kind_of(o));
}
// Operations without a number, such as shrink, are the same if they are of one kind.
bool same_collective(const operation_snapshot& a, const operation_snapshot& b) {
  return a.communicator == b.communicator && a.sequence == b.sequence &&
         (a.sequence != 0 || a.kind == b.kind);
}

// Numbers start again after 2^31.
bool has_called(std::uint32_t last, std::uint32_t sequence) { return last - sequence < 0x40000000U; }

// What a rank does, with equal texts for ranks in equal situations: times are separate.
struct row {
  std::string before;
  std::optional<std::int64_t> ns = {};  // without it there is no more
  std::string after = {};

  std::string text() const { return ns ? before + seconds_text(*ns) + after : before; }
};
using rows = std::vector<row>;

// The loop turns at least this often, unless something else has its thread.
constexpr std::int64_t longest_turn_ns = 300'000'000;

// What keeps a rank from its operations; nullopt: it waits for them, or for nothing of tutti's.
std::optional<row> hindrance(const rank_snapshot& r) {
  using base::process_state;
  if (r.at == phase::left && r.end.empty()) return row{"has left: its part is over"};
  if (!r.end.empty()) return row{"has gone: it " + r.end};
  if (r.thread == process_state::gone) return row{"has gone: its process has ended"};
  if (r.at == phase::none) return row{"has not joined: it has called neither tutti::run nor tutti::init yet"};
  if (r.at == phase::failed) return row{"has failed: " + r.failure_text};
  if (r.thread == process_state::stopped)
    return row{"is stopped (SIGSTOP, Ctrl-Z or a debugger; kill -CONT lets it go on): its loop last turned ",
               r.now_ns - std::max(r.turned_ns, r.asleep_ns), " ago"};
  const std::int64_t since_turn = r.now_ns - r.turned_ns;
  if (r.asleep_ns == 0 && since_turn > longest_turn_ns)
    return row{r.thread == process_state::sleeps
                   ? "blocks its loop thread (in a system call or a lock that is not tutti's): the loop has "
                     "not turned for "
                   : "computes on its loop thread: the loop has not turned for ",
               since_turn};
  const std::int64_t since_sleep = r.now_ns - r.asleep_ns;
  if (r.asleep_ns != 0 && since_sleep > longest_turn_ns && r.thread == process_state::runs)
    return row{"computes in a handler of its own on the loop thread; the loop last turned ", since_sleep,
               " ago"};
  if (r.at == phase::joining) return row{"has been joining the world for ", r.now_ns - r.since_ns};
  return std::nullopt;
}

// ---- the graph ----

// A collective that some ranks are in and others have not called.
struct missing_ranks {
  const operation_snapshot* operation;  // of one rank that waits in it
  const rank_snapshot* of;
  std::vector<int> ranks;  // of the world
  std::string names;       // of those
};

// Which rank waits for which, derived from the pending operations of all of them. Pure data.
// Its nodes are ranks, and the collectives that some have not called, with numbers below 0: all that are in one
// wait for its node, which waits for all that are missing.
class wait_graph {
 public:
  explicit wait_graph(const std::vector<rank_snapshot>& ranks) {  // which must outlive it
    for (const rank_snapshot& r : ranks) {
      by_rank_[r.rank] = &r;
      for (const communicator_snapshot& c : r.communicators) world_ranks_.try_emplace({c.id, c.rank}, r.rank);
    }
    // Finds ranks that have not called what others are in.
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (const rank_snapshot& r : ranks)
      for (const operation_snapshot& o : r.pending) {
        if (is_pairwise(o) || o.sequence == 0 || !seen.emplace(o.communicator, o.sequence).second) continue;
        missing_ranks m{&o, &r, {}, {}};
        for (const rank_snapshot& other : ranks) {
          const communicator_snapshot* const c = other.communicator(o.communicator);
          // Every rank is a member of the world, also one that has not come yet, or has gone.
          if (c == nullptr ? o.communicator == 0 : !has_called(c->last, o.sequence))
            m.ranks.push_back(other.rank);
        }
        if (m.ranks.empty()) continue;
        std::sort(m.ranks.begin(), m.ranks.end());
        m.names = ranks_text(m.ranks);
        missing_.push_back(std::move(m));
      }
    for (const missing_ranks& m : missing_)
      for (const int to : m.ranks)
        if (!works_in(to, *m.operation)) edges_[node_of(m)].push_back({to, m.operation});
    for (const rank_snapshot& r : ranks) {
      std::vector<edge>& edges = edges_[r.rank];
      if (hindrance(r) || r.compute_running > 0) continue;
      for (const operation_snapshot& o : r.pending) {
        if (const missing_ranks* const m = missing_in(o)) {
          if (!edges_of(node_of(*m)).empty()) edges.push_back({node_of(*m), &o});
        } else if (const int to = waited_for(r, o); to >= 0 && to != r.rank && !works_in(to, o)) {
          edges.push_back({to, &o});
        }
      }
    }
  }

  struct edge {
    int to;  // node
    const operation_snapshot* why;
  };
  // None for a rank that is stopped, computes or has gone: its pending operations do not hold it up.
  const std::vector<edge>& edges_of(int node) const {
    static const std::vector<edge> none;
    const auto found = edges_.find(node);
    return found == edges_.end() ? none : found->second;
  }
  // Why a rank waits for the next of a circle.
  const operation_snapshot& why(int rank, int next) const {
    const auto leads = [&](const edge& e) {
      return e.to == next ||
             (e.to < 0 && std::ranges::find(edges_of(e.to), next, &edge::to) != edges_of(e.to).end());
    };
    return *std::ranges::find_if(edges_of(rank), leads)->why;
  }

  const rank_snapshot* find(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }

  // -1: not known.
  int world_rank(std::uint32_t communicator, int rank) const {
    if (rank < 0) return -1;
    if (communicator == 0) return rank;
    const auto found = world_ranks_.find({communicator, rank});
    return found == world_ranks_.end() ? -1 : found->second;
  }

  // Whether its other half is pending, too.
  bool has_met(const rank_snapshot& of, const operation_snapshot& o) const {
    if (!is_pairwise(o)) return false;
    const rank_snapshot* const other = find(world_rank(o.communicator, o.peer));
    if (other == nullptr) return false;
    const bool sends = kind_of(o) == operation_kind::send;
    return std::any_of(other->pending.begin(), other->pending.end(), [&](const operation_snapshot& p) {
      if (!is_pairwise(p) || p.communicator != o.communicator) return false;
      if (kind_of(p) != (sends ? operation_kind::receive : operation_kind::send)) return false;
      const operation_snapshot& receive = sends ? p : o;
      const operation_snapshot& send = sends ? o : p;
      return (p.peer == any_source || world_rank(p.communicator, p.peer) == of.rank) &&
             (receive.tag == any_tag || receive.tag == send.tag);
    });
  }

  // The one rank that the operation waits for; -1: unknown, or its message is on its way.
  int waited_for(const rank_snapshot& of, const operation_snapshot& o) const {
    if (!is_pairwise(o)) return o.waits_for;
    return has_met(of, o) ? -1 : world_rank(o.communicator, o.peer);
  }

  // Null: no rank is missing in it.
  const missing_ranks* missing_in(const operation_snapshot& o) const {
    const auto found = std::ranges::find_if(missing_, [&](const missing_ranks& m) {
      return !is_pairwise(o) && same_collective(*m.operation, o);
    });
    return found == missing_.end() ? nullptr : &*found;
  }

  const std::vector<missing_ranks>& missing() const noexcept { return missing_; }

  // Each circle is a list of ranks: every one waits for the next, and the last for the first.
  std::vector<std::vector<int>> circles() const {
    std::vector<std::vector<int>> found;
    std::set<int> done;
    std::vector<int> way;  // from where the search began
    // Depth first; returns true once it has come to a rank that is on the way.
    const auto search = [&](const auto& self, int node) -> bool {
      way.push_back(node);
      for (const edge& e : edges_of(node)) {
        if (const auto first = std::ranges::find(way, e.to); first != way.end()) {
          std::vector<int> circle(first, way.end());
          std::erase_if(circle, [](int of_circle) { return of_circle < 0; });
          std::ranges::rotate(circle, std::ranges::min_element(circle));
          found.push_back(std::move(circle));
          done.insert(way.begin(), way.end());
          return true;
        }
        if (!done.contains(e.to) && self(self, e.to)) return true;
      }
      done.insert(node);
      way.pop_back();
      return false;
    };
    for (const auto& [start, edges] : edges_) {
      way.clear();
      if (!done.contains(start)) search(search, start);
    }
    return found;
  }

  // Ranks that others wait for, directly or through others, and that wait for none themselves; with the
  // waiting ranks. Those that most wait for.
  std::vector<std::pair<int, std::vector<int>>> culprits() const {
    std::map<int, std::vector<int>> waiting;  // by node, the nodes that wait for it
    for (const auto& [node, edges] : edges_)
      for (const edge& e : edges) waiting[e.to].push_back(node);
    std::map<std::vector<int>, std::vector<int>> reached;  // many have the same nodes directly before them
    std::vector<std::pair<int, const std::vector<int>*>> all;
    for (const auto& [rank, before] : waiting) {
      if (!edges_of(rank).empty()) continue;
      const auto [found, is_new] = reached.try_emplace(before);
      if (is_new) found->second = all_that_reach(before, waiting);
      if (!found->second.empty()) all.emplace_back(rank, &found->second);
    }
    std::ranges::sort(all, std::greater(),
                      [](const auto& one) { return std::pair(one.second->size(), -one.first); });
    std::vector<std::pair<int, std::vector<int>>> first;
    for (const auto& [rank, who] : std::views::take(all, most_culprits)) first.emplace_back(rank, *who);
    return first;
  }

 private:
  int node_of(const missing_ranks& m) const { return -1 - static_cast<int>(&m - missing_.data()); }

  // The ranks among these nodes, and among those that wait for them.
  static std::vector<int> all_that_reach(std::vector<int> nodes,
                                         const std::map<int, std::vector<int>>& waiting) {
    std::set<int> seen(nodes.begin(), nodes.end());
    while (!nodes.empty()) {
      const auto before = waiting.find(nodes.back());
      nodes.pop_back();
      if (before == waiting.end()) continue;
      for (const int node : before->second)
        if (seen.insert(node).second) nodes.push_back(node);
    }
    return {seen.lower_bound(0), seen.end()};
  }

  // Ranks in the same collective wait for each other by its nature, unless one of them cannot progress.
  bool works_in(int rank, const operation_snapshot& o) const {
    const rank_snapshot* const r = find(rank);
    const auto in_it = [&](const operation_snapshot& p) { return same_collective(p, o); };
    return !is_pairwise(o) && r != nullptr && std::ranges::any_of(r->pending, in_it) && !hindrance(*r);
  }

  std::map<int, const rank_snapshot*> by_rank_;
  std::map<std::pair<std::uint32_t, int>, int> world_ranks_;
  std::map<int, std::vector<edge>> edges_;
  std::vector<missing_ranks> missing_;
};

// ---- the text ----

const char* end_text(state how) {
  return how == state::done ? "ended" : how == state::cancelled ? "was cancelled" : "failed";
}

std::string name_of_communicator(std::uint32_t id, const rank_snapshot& of) {
  if (const communicator_snapshot* const c = of.communicator(id)) return c->name;
  return id == 0 ? "world" : fmt::format("communicator {}", id);
}

// "rank 3", by its number in the world if that is known.
std::string peer_text(const operation_snapshot& o, const rank_snapshot& of, const wait_graph& graph) {
  if (o.peer < 0) return "any rank";
  if (const int world = graph.world_rank(o.communicator, o.peer); world >= 0)
    return fmt::format("rank {}", world);
  return fmt::format("rank {} of {}", o.peer, name_of_communicator(o.communicator, of));
}

// "all_reduce #41 on world, 1.0 MiB, at train.cpp:81".
std::string describe(const operation_snapshot& o, const rank_snapshot& of, const wait_graph& graph) {
  const operation_kind kind = kind_of(o);
  const std::string comm = name_of_communicator(o.communicator, of);
  std::string text;
  if (!is_pairwise(o) && o.sequence == 0) {
    text = fmt::format("{} on {}", name_of_kind(o.kind), comm);
  } else if (is_one_sided(o)) {
    text =
        fmt::format("{}{}{} on {}", name_of_kind(o.kind), o.peer >= 0 ? " at " + peer_text(o, of, graph) : "",
                    o.tag >= 0 ? fmt::format(", signal {}", o.tag) : "", comm);
  } else if (o.sequence == 0) {
    const char* const way = kind == operation_kind::send ? "to" : "from";
    text = fmt::format("{} {} {}, {} on {}", name_of_kind(o.kind), way, peer_text(o, of, graph),
                       o.tag == any_tag ? std::string("any tag") : fmt::format("tag {}", o.tag), comm);
  } else {
    text = fmt::format("{} #{} on {}", name_of_kind(o.kind), o.sequence, comm);
    if (detail::is_known(kind) && detail::row_of(kind).rooted && o.peer >= 0)
      text += fmt::format(", root {}", o.peer);
  }
  if (o.bytes != 0) text += fmt::format(", {}", bytes_text(o.bytes));
  if (o.moved != 0 && o.how == state::pending)
    text += fmt::format(" ({} of them have come)", bytes_text(o.moved));
  if (const std::string where = o.where(); !where.empty()) text += fmt::format(", at {}", where);
  return text;
}

// Never empty.
rows rows_of(const rank_snapshot& r, const wait_graph& graph) {
  rows all;
  const std::optional<row> hindered = hindrance(r);
  if (hindered) all.push_back(*hindered);
  if (r.at == phase::none || (r.at == phase::left && r.end.empty())) return all;
  const bool held_up = !hindered;
  for (const operation_snapshot& a : r.doing) {
    const std::string where =
        a.kind == kind_span ? fmt::format("is in \"{}\" for ", a.text) : "computes on the pool for ";
    all.push_back({where, r.now_ns - a.start_ns});
  }
  for (const operation_snapshot& o : std::views::take(r.pending, most_shown)) {
    std::string what = fmt::format(" {} {}", held_up ? "in" : "", describe(o, r, graph));
    if (is_pairwise(o)) {
      if (graph.has_met(r, o)) what += ": on its way";
    } else if (const missing_ranks* const m = graph.missing_in(o)) {
      what += ": for " + m->names;
    } else if (o.waits_for >= 0) {
      what += fmt::format(": for rank {}", o.waits_for);
    }
    all.push_back({held_up ? "waits " : "pending there: since ", r.now_ns - o.start_ns,
                   held_up ? what : what.substr(1)});
  }
  if (r.pending.size() > most_shown)
    all.push_back({fmt::format("and {} more", r.pending.size() - most_shown)});
  if (r.pending.empty() && held_up && r.doing.empty()) all.push_back({"waits for no operation of tutti's"});
  if ((r.pending.empty() || !held_up) && !r.recent.empty())
    all.push_back({fmt::format("last: {}, which {} ", describe(r.recent.front(), r, graph),
                               end_text(r.recent.front().how)),
                   r.now_ns - r.recent.front().end_ns, " ago"});
  return all;
}

// Ranks in equal situations are one line, with the longest of their times.
std::string table(const std::vector<rank_snapshot>& ranks, const wait_graph& graph) {
  struct group {
    std::vector<int> ranks;
    rows lines;
    int pid = 0;
    std::string host;
  };
  std::vector<group> groups;
  std::map<std::string, std::size_t> places;
  for (const rank_snapshot& r : ranks) {
    rows lines = rows_of(r, graph);
    std::string key;
    for (const row& one : lines) key += one.before + '\1' + one.after + '\n';
    const auto [place, is_new] = places.emplace(key, groups.size());
    if (is_new) {
      groups.push_back({{r.rank}, std::move(lines), r.pid, r.host});
      continue;
    }
    group& g = groups[place->second];
    g.ranks.push_back(r.rank);
    for (std::size_t i = 0; i < lines.size(); ++i) g.lines[i].ns = std::max(g.lines[i].ns, lines[i].ns);
  }
  std::string text;
  for (const group& g : groups) {
    std::string who = ranks_text(g.ranks);
    if (g.ranks.size() > 1) who += ": each";
    if (g.ranks.size() == 1 && g.pid > 0)
      who += fmt::format(" (pid {}{})", g.pid, g.host.empty() ? "" : " on " + g.host);
    for (std::size_t i = 0; i < g.lines.size(); ++i)
      text += fmt::format("  {} {}\n", i == 0 ? who : std::string(who.size(), ' '), g.lines[i].text());
  }
  return text;
}

std::string missing_lines(const wait_graph& graph) {
  std::string text;
  for (const missing_ranks& m : std::views::take(graph.missing(), most_missing)) {
    const std::uint32_t comm = m.operation->communicator;
    text += fmt::format("{} #{} on {} has not been called by {}", name_of_kind(m.operation->kind),
                        m.operation->sequence, name_of_communicator(comm, *m.of), m.names);
    if (const rank_snapshot* const r = graph.find(m.ranks.front()))
      if (const communicator_snapshot* const c = r->communicator(comm))
        text += c->last == 0 ? fmt::format(" (rank {} has called none there yet)", r->rank)
                             : fmt::format(" (the last that rank {} called there was #{})", r->rank, c->last);
    text += "\n";
  }
  return text;
}

std::string circle_lines(const wait_graph& graph) {
  std::string text;
  const std::vector<std::vector<int>> circles = graph.circles();
  for (const std::vector<int>& circle : std::views::take(circles, most_circles)) {
    text += "a circle: ";
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const int next = circle[(i + 1) % circle.size()];
      const operation_snapshot& why = graph.why(circle[i], next);
      const std::string where = why.where();
      const std::string in =
          fmt::format(" ({}{}{})", name_of_kind(why.kind), where.empty() ? "" : " at ", where);
      text += i == 0 ? fmt::format("rank {} waits for {}{}", circle[i], next, in)
                     : fmt::format(", {} for {}{}", circle[i], next, in);
    }
    text += ": none of them can go on\n";
  }
  return text;
}

std::string culprit_lines(const wait_graph& graph) {
  std::string text;
  for (const auto& [rank, who] : graph.culprits()) {
    std::string what = "of which nothing is known here (another host?)";
    if (const rank_snapshot* const r = graph.find(rank)) what = "which " + rows_of(*r, graph).front().text();
    text +=
        fmt::format("{} wait{} for rank {}, {}\n", ranks_text(who), who.size() == 1 ? "s" : "", rank, what);
  }
  return text;
}

}  // namespace

const char* name_of_kind(std::uint8_t kind) noexcept {
  if (kind == kind_compute) return "compute";
  if (kind == kind_span) return "span";
  if (kind == kind_asleep) return "asleep";
  return detail::name_of(static_cast<operation_kind>(kind));
}

std::string seconds_text(std::int64_t ns) {
  const auto ms = static_cast<double>(std::max<std::int64_t>(ns, 0)) / 1e6;
  if (ms < 1) return fmt::format("{:.3g} us", ms * 1000);
  if (ms < 999.5) return fmt::format("{:.3g} ms", ms);
  return ms < 600'000 ? fmt::format("{:.1f} s", ms / 1000) : fmt::format("{:.0f} min", ms / 60'000);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  const int unit = std::min(63 - std::countl_zero(bytes), 40) / 10;  // 1: KiB
  return fmt::format("{:.3g} {}", std::ldexp(static_cast<double>(bytes), -10 * unit), units[unit - 1]);
}

std::string explain(const std::vector<rank_snapshot>& ranks) {
  const wait_graph graph(ranks);
  return table(ranks, graph) + missing_lines(graph) + circle_lines(graph) + culprit_lines(graph);
}

std::string last_operations(const rank_snapshot& rank, std::size_t most, const std::string& indent) {
  const std::vector<rank_snapshot> alone{rank};
  const wait_graph graph(alone);
  std::string text;
  const auto pending = std::views::take(rank.pending, most);
  for (const operation_snapshot& o : pending)
    text += fmt::format("{}{}: begun {} before, never ended\n", indent, describe(o, rank, graph),
                        seconds_text(rank.now_ns - o.start_ns));
  for (const operation_snapshot& o : std::views::take(rank.recent, most - pending.size()))
    text += fmt::format("{}{}: {} {} before\n", indent, describe(o, rank, graph), end_text(o.how),
                        seconds_text(rank.now_ns - o.end_ns));
  return text;
}

std::vector<std::string> pending_operations(const std::vector<rank_snapshot>& ranks) {
  const wait_graph graph(ranks);
  std::vector<std::string> pending;
  for (const rank_snapshot& r : ranks) {
    std::string& all = pending.emplace_back();
    for (const operation_snapshot& o : r.pending) all += (all.empty() ? "" : "; ") + describe(o, r, graph);
  }
  return pending;
}

}  // namespace tutti::flight
