// SPDX-License-Identifier: Apache-2.0
// Common parts of the page of a run and the page that compares several.
#pragma once

#include "report/run_data.hpp"

#include <map>
#include <string>
#include <vector>

namespace tutti::report {

// From the document's beginning to the heading, with a line below it. `title` is text, not HTML.
std::string page_head(const std::string& title, const std::string& line);
constexpr const char* page_end = "</body></html>\n";

// Local time: "2026-01-31 23:59:59"; empty for none.
std::string time_text(double seconds_since_1970);

// What is one line in each chart: a rank, or a run.
struct curve_source {
  int number;  // as of line_data
  std::string label;
  const std::map<std::string, std::vector<point>>* series;
};
// The section of charts, one for each series of any source; those of time and machine are collapsed.
std::string curves(const std::vector<curve_source>& sources);

}  // namespace tutti::report
