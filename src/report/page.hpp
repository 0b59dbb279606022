// SPDX-License-Identifier: Apache-2.0
// Runs as one self-contained HTML page: no network, no script, no other file (except the artifacts that it
// links to).
#pragma once

#include "report/run_data.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti::report {

std::string page_of(const run_data& run);

// Several runs side by side. A chart for each series, with a line for each run, the mean over its ranks. Then
// the hyperparameters in which the runs differ, and the last values.
std::string comparison_of(const std::vector<run_data>& runs);

// A run for a terminal.
std::string summary_of(const run_data& run);

// ---- parts of pages: texts, and charts as SVG ----

// From the document's beginning to the heading, with a line below it. `title` is text, not HTML.
std::string page_head(const std::string& title, const std::string& line);
constexpr const char* page_end = "</body></html>\n";

// Local time: "2026-01-31 23:59:59"; empty for none.
std::string time_text(double seconds_since_1970);

// Escapes text for elements and quoted attributes.
std::string escaped(const std::string& text);
// "0.25", "1.2e-05".
std::string short_number(double value);
// A row of a table. Numbers are aligned to the right; all else is HTML.
template <class... Cells>
std::string row(const Cells&... cells) {
  const auto cell = []<class T>(const T& c) {
    if constexpr (std::is_floating_point_v<T>) {
      return fmt::format("<td class=n>{}</td>", short_number(c));
    } else {
      return fmt::format("<td{}>{}</td>", std::is_integral_v<T> ? " class=n" : "", c);
    }
  };
  return "<tr>" + (cell(cells) + ... + std::string("</tr>"));
}
// A legend's entry for line n.
std::string legend_entry(int number, const std::string& label);

std::string histogram_chart(const std::string& title, const histogram_data& h, int rank);

// What is one line in each chart: a rank, or a run.
struct curve_source {
  int number;         // selects the colour: a rank, or a run's place among several
  std::string label;  // "rank 3", or a run's name
  const std::map<std::string, std::vector<point>>* series;
};
// The section of charts, one for each series of any source: lines over the steps, with gaps where values are not
// finite. Those of time and machine are collapsed.
std::string curves(const std::vector<curve_source>& sources);

}  // namespace tutti::report
