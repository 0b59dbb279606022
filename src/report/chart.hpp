// SPDX-License-Identifier: Apache-2.0
// Charts of numbers, as SVG inside a page.
#pragma once

#include "report/run_data.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tutti::report {

// Escapes text for elements and quoted attributes.
std::string escaped(const std::string& text);
// "0.25", "1.2e-05".
std::string short_number(double value);
// A legend's entry for line n.
std::string legend_entry(int number, const std::string& label);

struct line_data {
  int number = 0;     // selects the colour: a rank, or a run's place among several
  std::string label;  // "rank 3", or a run's name
  const std::vector<point>* points = nullptr;
};
// The lines over the steps. Values that are not finite make a gap.
std::string line_chart(const std::string& title, const std::vector<line_data>& lines);
std::string histogram_chart(const std::string& title, const histogram_data& h, int rank);
// A row for each rank: its label and lengths. The longest row sets the scale.
std::string stacked_bars(const std::vector<std::pair<std::string, std::vector<double>>>& rows,
                         const std::vector<std::string>& colours);

}  // namespace tutti::report
