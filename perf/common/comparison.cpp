// SPDX-License-Identifier: Apache-2.0
#include "common/comparison.hpp"

#include "common/placement.hpp"
#include "common/sizes.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <set>
#include <utility>

namespace perf {
namespace {

const row* row_of(const report& from, std::size_t bytes) {
  const auto found = std::find_if(from.rows.begin(), from.rows.end(), [&](const row& r) { return r.bytes == bytes; });
  return found == from.rows.end() ? nullptr : &*found;
}

struct pair {
  const row* own;
  const row* rival;

  bool is_clean() const {
    const char place = place_of(own->line_before_ns);
    return place == place_of(own->line_after_ns) && place == place_of(rival->line_before_ns) &&
           place == place_of(rival->line_after_ns);
  }
};

std::vector<const row*> launches_of(const std::vector<report>& reports, std::size_t bytes) {
  std::vector<const row*> rows;
  for (const report& one : reports)
    if (const row* r = row_of(one, bytes)) rows.push_back(r);
  return rows;
}

template <class Value>
summary summary_of(const std::vector<const row*>& rows, Value value) {
  std::vector<double> values;
  for (const row* r : rows) values.push_back(value(*r));
  return summarize(values);
}

void compare_pairs(comparison_row& result, std::vector<pair> pairs) {
  std::vector<pair> clean;
  std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(clean), [](const pair& p) { return p.is_clean(); });
  result.left_out = static_cast<int>(pairs.size() - clean.size());
  if (clean.empty()) {
    result.left_out = 0;
    result.places = pairs.empty() ? "" : "mixed";
  } else {
    pairs = clean;
    std::set<char> places;
    for (const pair& p : pairs) places.insert(place_of(p.own->line_before_ns));
    result.places.assign(places.begin(), places.end());
  }
  std::vector<double> ratios, ratios_of_means;
  for (const pair& p : pairs) {
    ratios.push_back(p.own->median_us / std::max(p.rival->median_us, 1e-9));
    ratios_of_means.push_back(p.own->mean_us / std::max(p.rival->mean_us, 1e-9));
  }
  result.pairs = static_cast<int>(pairs.size());
  result.ratio = summarize(ratios);
  result.ratio_of_means = summarize(ratios_of_means).median;
}

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return std::string(buffer, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof buffer) - 1)));
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
    line += text_of(r.rival_us) + text(" | **%.2f** (%.2f..%.2f) | %.2f", r.ratio.median, r.ratio.min, r.ratio.max,
                                       r.ratio_of_means);
    line += " | " + text_of(r.own_cpu_us) + " / " + text_of(r.rival_cpu_us) + text(" | %d ", r.pairs) + r.places;
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
    comparison_row r;
    r.bytes = first.bytes;
    const auto own_rows = launches_of(own, r.bytes), rival_rows = launches_of(rival, r.bytes);
    const auto median = [](const row& x) { return x.median_us; };
    const auto cpu = [](const row& x) { return x.cpu_us; };
    r.own_us = summary_of(own_rows, median);
    r.rival_us = summary_of(rival_rows, median);
    r.own_cpu_us = summary_of(own_rows, cpu).median;
    r.rival_cpu_us = summary_of(rival_rows, cpu).median;
    for (const auto& rows : {own_rows, rival_rows})
      for (const row* each : rows) r.good = r.good && each->faults == 0;

    std::vector<pair> pairs;
    for (std::size_t i = 0; i < std::min(own.size(), rival.size()); ++i) {
      const pair p{row_of(own[i], r.bytes), row_of(rival[i], r.bytes)};
      if (p.own != nullptr && p.rival != nullptr) pairs.push_back(p);
    }
    compare_pairs(r, std::move(pairs));
    result.push_back(std::move(r));
  }
  return result;
}

std::string markdown_of(const std::vector<report>& own, const std::vector<report>& rival) {
  if (own.empty()) return {};
  const report& about = own.front();
  const bool has_rival = !rival.empty();
  std::string result = "\n### " + about.command + ", " + std::to_string(about.ranks) + " ranks on " +
                       std::to_string(about.cores) + " cores, " + about.transport + "\n\n" + about.library + " (loop " +
                       about.loop + ")";
  if (has_rival) result += " / " + rival.front().library + " (" + rival.front().transport + ")";
  result += text(", %zu launches each, ", own.size()) + about.machine + "\n\n";
  if (has_rival) {
    result += "| size | " + about.program + " us | " + rival.front().program +
              " us | ratio | ratio of means | CPU us/op | pairs | checked |\n|---|---|---|---|---|---|---|---|\n";
  } else {
    result += "| size | " + about.program + " us | CPU us/op | checked |\n|---|---|---|---|\n";
  }
  for (const comparison_row& r : compare(own, rival)) result += line_of(r, has_rival);
  return result;
}

}  // namespace perf
