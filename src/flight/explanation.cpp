// SPDX-License-Identifier: Apache-2.0
#include "flight/explanation.hpp"

#include "base/text.hpp"
#include "flight/wait_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <tutti/detail/operation_kind.hpp>
#include <tutti/status.hpp>

namespace tutti::flight {
namespace {

using base::ranks_text;
using detail::operation_kind;

constexpr std::size_t most_shown = 4;  // pending operations of a rank
constexpr std::size_t most_circles = 4;
constexpr std::size_t most_culprits = 4;
constexpr std::size_t most_missing = 8;

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
  const auto kind = static_cast<operation_kind>(o.kind);
  const std::string comm = name_of_communicator(o.communicator, of);
  std::string text;
  if (kind > operation_kind::probe && o.sequence == 0) {
    text = fmt::format("{} on {}", name_of_kind(o.kind), comm);
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

// What a rank does, with equal texts for ranks in equal situations: times are separate.
struct row {
  std::string before;
  std::optional<std::int64_t> ns = {};  // without it there is no more
  std::string after = {};

  std::string text() const { return ns ? before + seconds_text(*ns) + after : before; }
};
using rows = std::vector<row>;

row condition_row(const rank_snapshot& r) {
  switch (condition_of(r)) {
    case rank_condition::not_there:
      return {"has not joined: it has called neither tutti::run nor tutti::init yet"};
    case rank_condition::joining:
      return {"has been joining the world for ", r.now_ns - r.since_ns};
    case rank_condition::left:
      return {"has left: its part is over"};
    case rank_condition::failed:
      return {"has failed: " + r.failure_text};
    case rank_condition::gone:
      return {"has gone: " + (r.end.empty() ? "its process has ended" : "it " + r.end)};
    case rank_condition::stopped:
      return {"is stopped (SIGSTOP, Ctrl-Z or a debugger; kill -CONT lets it go on): its loop last turned ",
              r.now_ns - std::max(r.turned_ns, r.asleep_ns), " ago"};
    case rank_condition::computing:
      return {"computes on its loop thread: the loop has not turned for ", r.now_ns - r.turned_ns};
    case rank_condition::blocked:
      return {
          "blocks its loop thread (in a system call or a lock that is not tutti's): the loop has not "
          "turned for ",
          r.now_ns - r.turned_ns};
    case rank_condition::in_handler:
      return {"computes in a handler of its own on the loop thread; the loop last turned ",
              r.now_ns - r.asleep_ns, " ago"};
    case rank_condition::working:
      break;
  }
  return {};
}

rows rows_of(const rank_snapshot& r, const wait_graph& graph) {
  rows all;
  const rank_condition is = condition_of(r);
  if (is != rank_condition::working) all.push_back(condition_row(r));
  if (is == rank_condition::not_there || is == rank_condition::left) return all;
  const bool held_up = is == rank_condition::working;
  for (const operation_snapshot& a : r.doing) {
    const std::string where =
        a.kind == kind_span ? fmt::format("is in \"{}\" for ", a.text) : "computes on the pool for ";
    all.push_back({where, r.now_ns - a.start_ns});
  }
  for (const operation_snapshot& o : std::views::take(r.pending, most_shown)) {
    std::string what = fmt::format(" {} {}", held_up ? "in" : "", describe(o, r, graph));
    if (o.sequence != 0) {
      const std::vector<int> missing = graph.waited_for(r, o);
      if (!missing.empty()) what += fmt::format(": for {}", ranks_text(missing));
    } else if (graph.has_met(r, o)) {
      what += ": on its way";
    }
    all.push_back({held_up ? "waits " : "pending there: since ", r.now_ns - o.start_ns,
                   held_up ? what : what.substr(1)});
  }
  if (r.pending.size() > most_shown)
    all.push_back({fmt::format("and {} more", r.pending.size() - most_shown)});
  if (r.pending.empty() && held_up && r.doing.empty()) all.push_back({"waits for no operation of tutti's"});
  if ((r.pending.empty() || !held_up) && !r.recent.empty())
    all.push_back({fmt::format("last: {}, which {} ", describe(r.recent.front(), r, graph),
                               r.recent.front().how == state::done ? "ended" : "failed"),
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
                        m.operation->sequence, name_of_communicator(comm, *m.of), ranks_text(m.ranks));
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
      const auto edge = std::ranges::find(graph.edges_of(circle[i]), next, &wait_graph::edge::to);
      const std::string where = edge->why->where();
      const std::string in =
          fmt::format(" ({}{}{})", name_of_kind(edge->why->kind), where.empty() ? "" : " at ", where);
      text += i == 0 ? fmt::format("rank {} waits for {}{}", circle[i], next, in)
                     : fmt::format(", {} for {}{}", circle[i], next, in);
    }
    text += ": none of them can go on\n";
  }
  return text;
}

std::string culprit_lines(const wait_graph& graph) {
  std::string text;
  const auto culprits = graph.culprits();
  for (const auto& [rank, who] : std::views::take(culprits, most_culprits)) {
    std::string what = "of which nothing is known here (another host?)";
    if (const rank_snapshot* const r = graph.find(rank)) {
      const rows lines = rows_of(*r, graph);
      what = "which " + (lines.empty() ? "does nothing that is known" : lines.front().text());
    }
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
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (amount >= 1024 && unit < 3) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", amount, units[unit]);
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
  for (const operation_snapshot& o : std::views::take(rank.recent, most - pending.size())) {
    const char* const how = o.how == state::done        ? "ended"
                            : o.how == state::cancelled ? "was cancelled"
                                                        : "failed";
    text += fmt::format("{}{}: {} {} before\n", indent, describe(o, rank, graph), how,
                        seconds_text(rank.now_ns - o.end_ns));
  }
  return text;
}

std::vector<std::string> pending_operations(const std::vector<rank_snapshot>& ranks) {
  const wait_graph graph(ranks);
  std::vector<std::string> texts;
  for (const rank_snapshot& r : ranks) {
    std::string& text = texts.emplace_back();
    for (const operation_snapshot& o : r.pending) text += (text.empty() ? "" : "; ") + describe(o, r, graph);
  }
  return texts;
}

}  // namespace tutti::flight
