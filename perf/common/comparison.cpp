// SPDX-License-Identifier: Apache-2.0
#include "common/comparison.hpp"

#include "common/placement.hpp"
#include "common/sizes.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <utility>

namespace perf {
namespace {

const row* row_of(const report& from, std::size_t bytes) {
  const auto found =
      std::find_if(from.rows.begin(), from.rows.end(), [&](const row& r) { return r.bytes == bytes; });
  return found == from.rows.end() ? nullptr : &*found;
}

struct pair {
  const row* own;
  const row* rival;  // null: there is no rival

  // The one place that both saw all the time, or none.
  char place() const {
    const char first = place_of(own->line_before_ns);
    for (const row* r : {own, rival})
      if (place_of(r->line_before_ns) != first || place_of(r->line_after_ns) != first) return unknown_place;
    return first;
  }
};

std::vector<pair> pairs_of(const std::vector<report>& own, const std::vector<report>& rival,
                           std::size_t bytes) {
  std::vector<pair> pairs;
  for (std::size_t i = 0; i < own.size() && (rival.empty() || i < rival.size()); ++i) {
    const pair p{row_of(own[i], bytes), rival.empty() ? nullptr : row_of(rival[i], bytes)};
    if (p.own != nullptr && (p.rival != nullptr || rival.empty())) pairs.push_back(p);
  }
  return pairs;
}

template <class Value>
summary summary_of(const std::vector<pair>& pairs, Value value) {
  std::vector<double> values;
  for (const pair& p : pairs) values.push_back(value(p));
  return summarize(values);
}

double ratio_of(double own, double rival) { return own / std::max(rival, 1e-9); }

comparison_row row_for(const std::vector<pair>& pairs, std::string place) {
  comparison_row r;
  r.place = std::move(place);
  r.pairs = static_cast<int>(pairs.size());
  r.own_us = summary_of(pairs, [](const pair& p) { return p.own->median_us; });
  r.own_cpu_us = summary_of(pairs, [](const pair& p) { return p.own->cpu_us; }).median;
  if (pairs.empty() || pairs.front().rival == nullptr) return r;
  r.rival_us = summary_of(pairs, [](const pair& p) { return p.rival->median_us; });
  r.rival_cpu_us = summary_of(pairs, [](const pair& p) { return p.rival->cpu_us; }).median;
  r.ratio = summary_of(pairs, [](const pair& p) { return ratio_of(p.own->median_us, p.rival->median_us); });
  r.ratio_of_means =
      summary_of(pairs, [](const pair& p) { return ratio_of(p.own->mean_us, p.rival->mean_us); }).median;
  return r;
}

// The rows of one size.
std::vector<comparison_row> compare_pairs(const std::vector<pair>& pairs) {
  if (pairs.empty()) return {};
  if (pairs.front().rival == nullptr) return {row_for(pairs, "")};
  std::map<char, std::vector<pair>> clean;
  for (const pair& p : pairs)
    if (p.place() != unknown_place) clean[p.place()].push_back(p);
  if (clean.empty()) return {row_for(pairs, "mixed")};
  std::vector<comparison_row> rows;
  int used = 0;
  for (const auto& [place, of_place] : clean) {
    rows.push_back(row_for(of_place, std::string(1, place)));
    used += rows.back().pairs;
  }
  rows.front().left_out = static_cast<int>(pairs.size()) - used;
  return rows;
}

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return std::string(buffer,
                     static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof buffer) - 1)));
}

// Three digits, as many of them behind the point as there is room for.
std::string text_of(double value) {
  int decimals = 3;
  for (double limit = 1; value >= limit && decimals > 0; limit *= 10) --decimals;
  return text("%.*f", decimals, value);
}

std::string text_of(const summary& times) {
  return text_of(times.median) + " (" + text_of(times.min) + ".." + text_of(times.max) + ")";
}

std::string line_of(const comparison_row& r, bool has_rival) {
  std::string line = "| " + text_of_size(r.bytes) + " | " + text_of(r.own_us) + " | ";
  if (has_rival) {
    line += text_of(r.rival_us) + text(" | **%.2f** (%.2f..%.2f) | %.2f", r.ratio.median, r.ratio.min,
                                       r.ratio.max, r.ratio_of_means);
    line +=
        " | " + text_of(r.own_cpu_us) + " / " + text_of(r.rival_cpu_us) + text(" | %d ", r.pairs) + r.place;
    if (r.left_out > 0) line += text(", %d left out", r.left_out);
  } else {
    line += text_of(r.own_cpu_us);
  }
  return line + " | " + (r.good ? "ok" : "**WRONG**") + " |\n";
}

}  // namespace

std::vector<comparison_row> compare(const std::vector<report>& own, const std::vector<report>& rival) {
  std::vector<comparison_row> result;
  if (own.empty()) return result;
  for (const row& first : own.front().rows) {
    const std::vector<pair> pairs = pairs_of(own, rival, first.bytes);
    const bool good = std::all_of(pairs.begin(), pairs.end(), [](const pair& p) {
      return p.own->faults == 0 && (p.rival == nullptr || p.rival->faults == 0);
    });
    for (comparison_row& r : compare_pairs(pairs)) {
      r.bytes = first.bytes;
      r.good = good;
      result.push_back(std::move(r));
    }
  }
  return result;
}

std::string markdown_of(const std::vector<report>& own, const std::vector<report>& rival) {
  if (own.empty()) return {};
  const report& about = own.front();
  const bool has_rival = !rival.empty();
  std::string result = "\n### " + about.command + ", " + std::to_string(about.ranks) + " ranks on " +
                       std::to_string(about.cores) + " cores, " + about.transport + "\n\n" + about.library +
                       " (loop " + about.loop + ")";
  if (has_rival) result += " / " + rival.front().library + " (" + rival.front().transport + ")";
  result += text(", %zu launches each, ", own.size()) + about.machine + "\n\n";
  if (has_rival) {
    result +=
        "| size | " + about.program + " us | " + rival.front().program +
        " us | ratio | ratio of means | CPU us/op | pairs | checked |\n|---|---|---|---|---|---|---|---|\n";
  } else {
    result += "| size | " + about.program + " us | CPU us/op | checked |\n|---|---|---|---|\n";
  }
  for (const comparison_row& r : compare(own, rival)) result += line_of(r, has_rival);
  return result;
}

}  // namespace perf
