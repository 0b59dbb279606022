// SPDX-License-Identifier: Apache-2.0
#include "common/comparison.hpp"

#include "common/placement.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace perf {
namespace {

bool is_own(std::string_view peer) noexcept { return peer.substr(0, 5) == "tutti"; }
bool is_limit(std::string_view peer) noexcept { return peer == "limit"; }
bool is_rival(std::string_view peer) noexcept { return !is_own(peer) && !is_limit(peer); }

const row* row_of(const report& from, std::size_t bytes) {
  const auto found =
      std::find_if(from.rows.begin(), from.rows.end(), [&](const row& r) { return r.bytes == bytes; });
  return found == from.rows.end() ? nullptr : &*found;
}

// The placement of a row if it was the same before and after; otherwise unknown.
template <class Row>
char place_of_row(const Row& r) {
  const char before = place_of(r.line_before_ns);
  return before == place_of(r.line_after_ns) ? before : unknown_place;
}

struct pair {
  const row* own;
  const row* rival;
  std::string rival_peer;

  char place() const {
    const char first = place_of_row(*own);
    return first == place_of_row(*rival) ? first : unknown_place;
  }
};

// The launches of one size, from the point of view of one peer of ours.
struct view {
  const benchmark* from;
  std::string own_peer;
  std::size_t bytes;
  bool means;

  double value(const row& r) const noexcept { return means ? r.mean_us : r.median_us; }
};

std::vector<pair> pairs_of(const view& v) {
  std::vector<pair> pairs;
  const row* own = nullptr;
  for (const launch& one : v.from->launches) {
    const row* const seen = row_of(one.what, v.bytes);
    if (seen == nullptr) continue;
    if (one.peer == v.own_peer)
      own = seen;
    else if (is_rival(one.peer) && own != nullptr)
      pairs.push_back({own, seen, one.peer});
  }
  return pairs;
}

// `place` 0: in any placement.
std::vector<const row*> rows_of(const view& v, std::string_view peer, char place) {
  std::vector<const row*> rows;
  for (const launch& one : v.from->launches) {
    const row* const seen = one.peer == peer ? row_of(one.what, v.bytes) : nullptr;
    if (seen != nullptr && (place == 0 || place_of_row(*seen) == place)) rows.push_back(seen);
  }
  return rows;
}

peer_value value_of(const view& v, const std::string& peer, char place) {
  peer_value result;
  result.peer = peer;
  std::vector<double> times, cpu;
  for (const row* r : rows_of(v, peer, place)) {
    times.push_back(v.value(*r));
    cpu.push_back(r->cpu_us);
  }
  result.launches = static_cast<int>(times.size());
  result.us = summarize(times);
  result.cpu_us = summarize(cpu).median;
  return result;
}

double ratio_of(double own, double rival) { return own / std::max(rival, 1e-9); }

summary ratios_of(const view& v, const std::vector<pair>& pairs, std::string_view rival) {
  std::vector<double> ratios;
  for (const pair& p : pairs)
    if (p.rival_peer == rival) ratios.push_back(ratio_of(v.value(*p.own), v.value(*p.rival)));
  return summarize(ratios);
}

command command_of(const std::string& name) noexcept {
  for (int i = 0; i < command_count; ++i)
    if (name == name_of(static_cast<command>(i))) return static_cast<command>(i);
  return command::latency;
}

memory memory_of(const report& r) noexcept {
  return r.memory == "shared" ? memory::shared : memory::ordinary;
}

bool reached(const target& aim, double value) noexcept {
  return aim.is == target::rule::at_most ? value <= aim.ratio : value >= aim.ratio;
}

const report& about_own(const view& v) {
  for (const launch& one : v.from->launches)
    if (one.peer == v.own_peer) return one.what;
  return v.from->launches.front().what;
}

// Whether the row contains every rival of this size that `aim` is measured against.
bool has_all(const view& v, const target& aim, const comparison_row& r) {
  return std::all_of(v.from->launches.begin(), v.from->launches.end(), [&](const launch& one) {
    if (!is_rival(one.peer) || !is_against(aim, one.peer) || row_of(one.what, v.bytes) == nullptr)
      return true;
    return std::any_of(r.others.begin(), r.others.end(),
                       [&](const peer_value& p) { return p.peer == one.peer; });
  });
}

void judge_row(const view& v, const std::vector<pair>& pairs, comparison_row& r) {
  const report& about = about_own(v);
  r.complete = has_all(v, target{}, r);
  for (const target& aim : all_targets()) {
    if (!concerns(aim, command_of(about.command), about.transport, about.ranks, r.bytes, memory_of(about)))
      continue;
    comparison_row::verdict verdict{aim, 0, "", false};
    if (aim.against == "limit") {
      if (r.limit_us <= 0) continue;
      verdict.against = "limit";
      verdict.reached = ratio_of(r.own.us.median, r.limit_us);
      verdict.met = reached(aim, verdict.reached);
    } else {
      const auto rival = std::find_if(r.others.begin(), r.others.end(),
                                      [&](const peer_value& one) { return is_against(aim, one.peer); });
      const bool all = has_all(v, aim, r);
      if (all && rival == r.others.end()) continue;  // no such rival was launched
      if (all) {
        verdict.against = rival->peer;
        verdict.reached = ratios_of(v, pairs, rival->peer).median;
        verdict.met = reached(aim, verdict.reached) && (!aim.cpu_too || r.own.cpu_us <= rival->cpu_us);
      }
    }
    r.verdicts.push_back(std::move(verdict));
  }
}

comparison_row row_for(const view& v, const std::vector<pair>& pairs, char place, std::string name) {
  comparison_row r;
  r.bytes = v.bytes;
  r.place = std::move(name);
  r.own = value_of(v, v.own_peer, place);
  std::set<std::string> rivals;
  for (const pair& p : pairs) rivals.insert(p.rival_peer);
  for (const std::string& peer : rivals) r.others.push_back(value_of(v, peer, place));
  std::sort(r.others.begin(), r.others.end(),
            [](const peer_value& a, const peer_value& b) { return a.us.median < b.us.median; });
  const peer_value limit = value_of(v, "limit", place);
  if (limit.launches > 0) r.limit_us = limit.us.median;
  if (!r.others.empty()) {
    r.rival = r.others.front();
    r.ratio = ratios_of(v, pairs, r.rival.peer);
    r.pairs = static_cast<int>(std::count_if(pairs.begin(), pairs.end(),
                                             [&](const pair& p) { return p.rival_peer == r.rival.peer; }));
  }
  judge_row(v, pairs, r);
  return r;
}

std::vector<comparison_row> compare_size(const view& v) {
  const std::vector<pair> pairs = pairs_of(v);
  if (pairs.empty()) return {row_for(v, {}, 0, "")};
  std::map<char, std::vector<pair>> clean;
  for (const pair& p : pairs)
    if (p.place() != unknown_place) clean[p.place()].push_back(p);
  if (clean.empty()) return {row_for(v, pairs, 0, "mixed")};
  std::vector<comparison_row> rows;
  std::size_t used = 0;
  for (const auto& [place, of_place] : clean) {
    rows.push_back(row_for(v, of_place, place, std::string(1, place)));
    used += of_place.size();
  }
  rows.front().left_out = static_cast<int>(pairs.size() - used);
  return rows;
}

// In order of first appearance.
template <class Values, class Value>
void add_once(Values& values, const Value& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

bool all_good(const benchmark& of, std::size_t bytes) {
  return std::all_of(of.launches.begin(), of.launches.end(), [&](const launch& one) {
    const row* const r = row_of(one.what, bytes);
    return r == nullptr || r->faults == 0;
  });
}

double median_of(const std::vector<const overlap_row*>& rows, double overlap_row::* member) {
  std::vector<double> values;
  for (const overlap_row* r : rows) values.push_back(r->*member);
  return summarize(values).median;
}

overlap_value overlap_of(const std::string& peer, const std::vector<const overlap_row*>& rows) {
  overlap_value v;
  v.peer = peer;
  v.launches = static_cast<int>(rows.size());
  v.median = *rows.front();
  for (double overlap_row::* member :
       {&overlap_row::comm_us, &overlap_row::compute_us, &overlap_row::both_us, &overlap_row::both_p10_us,
        &overlap_row::both_p90_us, &overlap_row::overlap, &overlap_row::comm_cpu_us,
        &overlap_row::compute_cpu_us, &overlap_row::both_cpu_us, &overlap_row::bound_us})
    v.median.*member = median_of(rows, member);
  v.good = std::all_of(rows.begin(), rows.end(), [](const overlap_row* r) { return r->faults == 0; });
  return v;
}

void judge_overlap(overlap_value& v) {
  const overlap_row& m = v.median;
  for (const target& aim : all_targets()) {
    if (aim.what != command::overlap || aim.mode != m.mode || m.bytes < aim.from_bytes) continue;
    const double sum = m.comm_cpu_us + m.compute_cpu_us;
    const double value = aim.measure == "overlap"      ? m.overlap
                         : aim.measure == "both/bound" ? ratio_of(m.both_us, m.bound_us)
                                                       : ratio_of(m.both_cpu_us, sum);
    v.verdicts.push_back({aim, value, std::string(aim.measure), reached(aim, value)});
  }
}

}  // namespace

bool uses_means(const benchmark& of) noexcept {
  return !of.launches.empty() && of.launches.front().what.command != "startup" &&
         of.launches.front().what.ranks > of.launches.front().what.cores;
}

std::vector<comparison_row> compare(const benchmark& of) {
  std::vector<std::size_t> sizes;
  std::vector<std::string> own_peers;
  for (const launch& one : of.launches) {
    for (const row& r : one.what.rows) add_once(sizes, r.bytes);
    if (is_own(one.peer)) add_once(own_peers, one.peer);
  }
  std::vector<comparison_row> result;
  for (const std::size_t bytes : sizes)
    for (const std::string& own : own_peers)
      for (comparison_row& r : compare_size({&of, own, bytes, uses_means(of)})) {
        if (r.own.launches == 0) continue;
        r.good = all_good(of, bytes);
        result.push_back(std::move(r));
      }
  return result;
}

std::vector<std::string> unpaired(const benchmark& of) {
  std::vector<std::string> missing;
  const char place = main_place(of);
  if (place == unknown_place) return missing;
  const std::vector<comparison_row> rows = compare(of);
  for (const launch& one : of.launches)
    for (const row& r : one.what.rows) {
      if (!is_rival(one.peer)) continue;
      const bool is_there = std::any_of(rows.begin(), rows.end(), [&](const comparison_row& in) {
        return in.own.peer == "tutti" && in.bytes == r.bytes && in.place == std::string(1, place) &&
               std::any_of(in.others.begin(), in.others.end(),
                           [&](const peer_value& p) { return p.peer == one.peer; });
      });
      if (!is_there) add_once(missing, one.peer);
    }
  return missing;
}

std::vector<overlap_value> overlaps_of(const benchmark& of) {
  // Sizes and modes in the order measured, then peers in the order of launching.
  std::vector<std::pair<std::size_t, std::string>> kinds;
  std::vector<std::string> peers;
  for (const launch& one : of.launches) {
    add_once(peers, one.peer);
    for (const overlap_row& r : one.what.overlaps) add_once(kinds, std::pair(r.bytes, r.mode));
  }
  std::vector<overlap_value> result;
  for (const auto& [bytes, mode] : kinds)
    for (const std::string& peer : peers) {
      std::vector<const overlap_row*> rows;
      for (const launch& one : of.launches)
        for (const overlap_row& r : one.what.overlaps)
          if (one.peer == peer && r.bytes == bytes && r.mode == mode) rows.push_back(&r);
      if (rows.empty()) continue;
      result.push_back(overlap_of(peer, rows));
      if (is_own(peer)) judge_overlap(result.back());
    }
  return result;
}

char main_place(const benchmark& of) noexcept {
  int best = 0;
  char place = unknown_place;
  for (const char candidate : {'C', 'X', 'S'}) {
    int count = 0;
    for (const launch& one : of.launches)
      for (const row& r : one.what.rows) count += place_of_row(r) == candidate ? 1 : 0;
    if (count > best) {
      best = count;
      place = candidate;
    }
  }
  return place;
}

}  // namespace perf
