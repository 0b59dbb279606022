// SPDX-License-Identifier: Apache-2.0
// perf-compare: the --json files of interleaved launches of two programs, as one Markdown table.
//   perf-compare --own a1.json,a2.json,a3.json --rival b1.json,b2.json,b3.json
#include "common/comparison.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::vector<perf::report> read(const std::vector<std::string>& files) {
  std::vector<perf::report> reports;
  for (const std::string& file : files) {
    std::ifstream from(file);
    const std::string text{std::istreambuf_iterator<char>(from), std::istreambuf_iterator<char>()};
    if (!from.is_open()) throw std::runtime_error(file + ": cannot be read");
    try {
      reports.push_back(perf::report_of_json(text));
    } catch (const std::runtime_error& wrong) {
      throw std::runtime_error(file + ": " + wrong.what());
    }
  }
  return reports;
}

// Tables of different things side by side would be worse than none.
void require_same_subject(const std::vector<perf::report>& own, const std::vector<perf::report>& rival) {
  for (const auto* reports : {&own, &rival})
    for (const perf::report& one : *reports) {
      const perf::report& first = own.front();
      if (one.command != first.command || one.ranks != first.ranks || one.transport != first.transport)
        throw std::runtime_error("these are of different things: " + first.command + " on " +
                                 std::to_string(first.ranks) + " ranks over " + first.transport + ", and " +
                                 one.command + " of " + one.program + " on " + std::to_string(one.ranks) +
                                 " ranks over " + one.transport);
    }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> own_files, rival_files;
  CLI::App app("Compares launches of two programs, pair by pair, as a Markdown table.", "perf-compare");
  app.add_option("--own", own_files, "JSON of each launch, in the order of launching")
      ->delimiter(',')
      ->required();
  app.add_option("--rival", rival_files, "the same of the rival")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  try {
    const std::vector<perf::report> own = read(own_files), rival = read(rival_files);
    require_same_subject(own, rival);
    std::fputs(perf::markdown_of(own, rival).c_str(), stdout);
    for (const auto* reports : {&own, &rival})
      for (const perf::report& one : *reports)
        if (!one.good()) return 1;
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "perf-compare: %s\n", failure.what());
    return 2;
  }
}
