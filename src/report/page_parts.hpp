// SPDX-License-Identifier: Apache-2.0
// Common parts of the page of a run and the page that compares several: texts, and charts as SVG.
#pragma once

#include "report/run_data.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::report {

// From the document's beginning to the heading, with a line below it. `title` is text, not HTML.
std::string page_head(const std::string& title, const std::string& line);
constexpr const char* page_end = "</body></html>\n";

// Local time: "2026-01-31 23:59:59"; empty for none.
std::string time_text(double seconds_since_1970);

// Escapes text for elements and quoted attributes.
std::string escaped(const std::string& text);
// "0.25", "1.2e-05".
std::string short_number(double value);
// A legend's entry for line n.
std::string legend_entry(int number, const std::string& label);

std::string histogram_chart(const std::string& title, const histogram_data& h, int rank);
// A row for each rank: its label and lengths. The longest row sets the scale.
std::string stacked_bars(const std::vector<std::pair<std::string, std::vector<double>>>& rows,
                         const std::vector<std::string>& colours);

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
