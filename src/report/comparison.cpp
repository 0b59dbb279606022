// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"
#include "report/page.hpp"
#include "report/page_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tutti::report {
namespace {

struct compared_run {
  const run_data* run;
  std::string label;
  std::map<std::string, std::vector<point>> means;     // by series, over the ranks that have it
  std::map<std::string, std::string> hyperparameters;  // several values if the ranks differ
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

std::map<std::string, std::string> hyperparameters_of(const run_data& run) {
  std::map<std::string, std::set<std::string>> values;
  for (const rank_data& r : run.ranks)
    for (const auto& [name, value] : r.hyperparameters) values[name].insert(value);
  std::map<std::string, std::string> texts;
  for (const auto& [name, different] : values) texts[name] = fmt::format("{}", fmt::join(different, ", "));
  return texts;
}

std::vector<compared_run> prepared(const std::vector<run_data>& runs) {
  std::vector<compared_run> all;
  for (const run_data& run : runs) {
    compared_run c{&run, run.name, {}, hyperparameters_of(run)};
    // The directory distinguishes runs of one name.
    if (std::ranges::count(runs, run.name, &run_data::name) > 1)
      c.label += " (" + run.directory.string() + ")";
    for (const rank_data& r : run.ranks)
      for (const auto& [name, points] : r.series)
        if (!c.means.contains(name)) c.means[name] = mean_of(run, name);
    all.push_back(std::move(c));
  }
  return all;
}

std::string key_of(const std::vector<compared_run>& runs, std::size_t i) {
  return legend_entry(static_cast<int>(i), runs[i].label);
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
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const run_data& run = *runs[i].run;
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=n>{}</td><td>{}</td><td>{}</td></tr>",
                       key_of(runs, i), time_text(run.created), run.size, states_of(run),
                       escaped(run.directory.string()));
  }
  return out + "</table>";
}

std::string curves_section_of_runs(const std::vector<compared_run>& runs) {
  std::vector<curve_source> sources;
  for (std::size_t i = 0; i < runs.size(); ++i)
    sources.push_back({static_cast<int>(i), runs[i].label, &runs[i].means});
  return curves(sources);
}

// A row for each run; a cell for each of `columns` that it has.
std::string table_of(const char* heading, const std::vector<compared_run>& runs,
                     const std::vector<std::map<std::string, std::string>>& cells,
                     const std::set<std::string>& columns) {
  if (columns.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2><div class=scroll><table><tr><th>run</th>", heading);
  for (const std::string& name : columns) out += "<th class=n>" + escaped(name) + "</th>";
  out += "</tr>";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += "<tr><td>" + key_of(runs, i) + "</td>";
    for (const std::string& name : columns) {
      const auto found = cells[i].find(name);
      out += "<td class=n>" + (found != cells[i].end() ? escaped(found->second) : "") + "</td>";
    }
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string differing_hyperparameters_section(const std::vector<compared_run>& runs) {
  std::vector<std::map<std::string, std::string>> cells;
  std::map<std::string, std::multiset<std::string>> values;
  for (const compared_run& c : runs) {
    cells.push_back(c.hyperparameters);
    for (const auto& [name, value] : c.hyperparameters) values[name].insert(value);
  }
  std::set<std::string> different;
  for (const auto& [name, all] : values)
    if (all.count(*all.begin()) < runs.size()) different.insert(name);
  return table_of("Hyperparameters that differ", runs, cells, different);
}

std::string last_values_section(const std::vector<compared_run>& runs) {
  std::vector<std::map<std::string, std::string>> cells(runs.size());
  std::set<std::string> columns;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [name, points] : runs[i].means) {
      if (is_machine_series(name) || points.empty()) continue;
      columns.insert(name);
      cells[i][name] = short_number(points.back().value);
    }
  return table_of("Last values", runs, cells, columns);
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
