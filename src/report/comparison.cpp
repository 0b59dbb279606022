// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tutti::report {
namespace {

using texts_by_name = std::map<std::string, std::string>;

struct compared_run {
  const run_data* run;
  int number;
  std::string label;
  texts_by_name hyperparameters;                    // several values if the ranks differ
  std::map<std::string, std::vector<point>> means;  // by series, over the ranks that have it
  texts_by_name last_values;                        // of these, but for time and machine

  std::string key() const { return legend_entry(number, label); }
};

// At each step over the ranks that have a finite value there.
std::vector<point> mean_of(const run_data& run, const std::string& series) {
  std::map<double, std::pair<double, int>> sums;
  for (const rank_data& r : run.ranks) {
    const auto found = r.series.find(series);
    if (found == r.series.end()) continue;
    for (const point& p : found->second) {
      auto& [sum, count] = sums[p.step];
      if (!std::isfinite(p.value)) continue;
      sum += p.value;
      ++count;
    }
  }
  std::vector<point> mean;
  for (const auto& [step, values] : sums)
    mean.push_back(
        {step, values.second > 0 ? values.first / values.second : std::numeric_limits<double>::quiet_NaN()});
  return mean;
}

texts_by_name hyperparameters_of(const run_data& run) {
  std::map<std::string, std::set<std::string>> values;
  for (const rank_data& r : run.ranks)
    for (const auto& [name, value] : r.hyperparameters) values[name].insert(value);
  texts_by_name texts;
  for (const auto& [name, different] : values) texts[name] = fmt::format("{}", fmt::join(different, ", "));
  return texts;
}

std::vector<compared_run> prepared(const std::vector<run_data>& runs) {
  std::vector<compared_run> all;
  for (const run_data& run : runs) {
    compared_run c{&run, static_cast<int>(all.size()), run.name, hyperparameters_of(run), {}, {}};
    // The directory distinguishes runs of one name.
    if (std::ranges::count(runs, run.name, &run_data::name) > 1)
      c.label += " (" + run.directory.string() + ")";
    for (const rank_data& r : run.ranks)
      for (const auto& [name, points] : r.series)
        if (!c.means.contains(name)) c.means[name] = mean_of(run, name);
    for (const auto& [name, points] : c.means)
      if (!is_machine_series(name) && !points.empty())
        c.last_values[name] = short_number(points.back().value);
    all.push_back(std::move(c));
  }
  return all;
}

// "2 finished, 1 died"
std::string states_of(const run_data& run) {
  std::map<std::string, int> counts;
  for (const rank_data& r : run.ranks) ++counts[name_of(r.state)];
  std::string text;
  for (const auto& [state, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state);
  return text;
}

std::string runs_section(const std::vector<compared_run>& runs) {
  std::string out =
      "<h2>Runs</h2><table><tr><th>run</th><th>created</th><th class=n>ranks</th><th>state</th>"
      "<th>directory</th></tr>";
  for (const compared_run& c : runs)
    out += row(c.key(), time_text(c.run->created), c.run->size, states_of(*c.run),
               escaped(c.run->directory.string()));
  return out + "</table>";
}

std::string curves_section_of_runs(const std::vector<compared_run>& runs) {
  std::vector<curve_source> sources;
  for (const compared_run& c : runs) sources.push_back({c.number, c.label, &c.means});
  return curves(sources);
}

// A row for each run; a cell for each of `columns` that it has.
std::string table_of(const char* heading, const std::vector<compared_run>& runs,
                     texts_by_name compared_run::* cells, const std::set<std::string>& columns) {
  if (columns.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2><div class=scroll><table><tr><th>run</th>", heading);
  for (const std::string& name : columns) out += "<th class=n>" + escaped(name) + "</th>";
  out += "</tr>";
  for (const compared_run& c : runs) {
    out += "<tr><td>" + c.key() + "</td>";
    for (const std::string& name : columns) {
      const auto found = (c.*cells).find(name);
      out += "<td class=n>" + (found != (c.*cells).end() ? escaped(found->second) : "") + "</td>";
    }
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string differing_hyperparameters_section(const std::vector<compared_run>& runs) {
  std::map<std::string, std::multiset<std::string>> values;
  for (const compared_run& c : runs)
    for (const auto& [name, value] : c.hyperparameters) values[name].insert(value);
  std::set<std::string> different;
  for (const auto& [name, all] : values)
    if (all.count(*all.begin()) < runs.size()) different.insert(name);
  return table_of("Hyperparameters that differ", runs, &compared_run::hyperparameters, different);
}

std::string last_values_section(const std::vector<compared_run>& runs) {
  std::set<std::string> columns;
  for (const compared_run& c : runs)
    for (const auto& [name, value] : c.last_values) columns.insert(name);
  return table_of("Last values", runs, &compared_run::last_values, columns);
}

}  // namespace

std::string comparison_of(const std::vector<run_data>& runs) {
  const std::vector<compared_run> compared = prepared(runs);
  std::string out =
      page_head(fmt::format("{} runs", runs.size()), "each line is the mean over the ranks of a run");
  for (auto* const section :
       {runs_section, curves_section_of_runs, differing_hyperparameters_section, last_values_section})
    out += section(compared);
  return out + page_end;
}

}  // namespace tutti::report
