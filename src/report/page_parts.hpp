// SPDX-License-Identifier: Apache-2.0
// Common parts of the page of a run and the page that compares several.
#pragma once

#include <functional>
#include <set>
#include <string>

namespace tutti::report {

// From the document's beginning to the heading, with a line below it. `title` is text, not HTML.
std::string page_head(const std::string& title, const std::string& line);
constexpr const char* page_end = "</body></html>\n";

// Local time: "2026-01-31 23:59:59"; empty for none.
std::string time_text(double seconds_since_1970);

// The section of charts, one for each series; those of time and machine are collapsed.
std::string curves(const std::string& legend, const std::set<std::string>& names,
                   const std::function<std::string(const std::string& name)>& chart);

}  // namespace tutti::report
