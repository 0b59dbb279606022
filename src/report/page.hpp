// SPDX-License-Identifier: Apache-2.0
// A run as one self-contained HTML page: no network, no script, no other file (except the artifacts that it
// links to).
#pragma once

#include "report/run_data.hpp"

#include <string>

namespace tutti::report {

std::string page_of(const run_data& run);

// A run for a terminal.
std::string summary_of(const run_data& run);

}  // namespace tutti::report
