// SPDX-License-Identifier: Apache-2.0
// Setting the clock must not move a deadline: waits use the monotonic clock.
#include "repo/source_tree.hpp"

#include <doctest/doctest.h>
#include <regex>
#include <string>
#include <vector>

TEST_CASE("the time of day is only for people: in files and reports of runs") {
  const std::regex time_of_day(
      R"(\b(system_clock|utc_clock|high_resolution_clock|CLOCK_REALTIME|gettimeofday|steady_timer_utc|deadline_timer)\b|\bstd::time\()");
  std::vector<std::string> findings;
  for (const std::string tree : {"src", "include", "gpu"}) {
    for (const std::string& path : repo::files_below(tree, {".cpp", ".hpp"})) {
      if (path.starts_with("src/track/") || path.starts_with("src/report/")) continue;
      if (path.starts_with("gpu/src/emulated/")) continue;  // a stand-in for hardware
      // A wait at the end for a call of a foreign library; g++'s thread sanitizer does not know waits on the
      // steady clock.
      if (path == "gpu/src/comm/submit_thread.cpp") continue;
      const std::string code = repo::code_only(repo::read(path));
      for (std::sregex_iterator at(code.begin(), code.end(), time_of_day), end; at != end; ++at)
        findings.push_back(path + ":" +
                           std::to_string(repo::line_of(code, static_cast<std::size_t>(at->position()))) +
                           ": " + at->str());
    }
  }
  repo::check_none(findings, "use std::chrono::steady_clock (core::clock)");
}
