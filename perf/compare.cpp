// SPDX-License-Identifier: Apache-2.0
// perf-compare: turns the launches that bench has made into tables, JSON and pictures.
//   perf-compare FOLDER --output perf/results
// FOLDER has a folder for each benchmark, with the --json of each launch: all_reduce.2.shm/007.openmpi.json,
// numbered in the order of launching. Without --output it prints the tables and writes nothing.
//   perf-compare FOLDER --unpaired all_reduce.2.shm
// prints the rivals without a launch in the placement with most measurements, one a line.
#include "common/comparison_text.hpp"
#include "common/parse.hpp"
#include "common/plot.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

perf::launch read_launch(const fs::path& file) {
  std::ifstream from(file);
  const std::string text{std::istreambuf_iterator<char>(from), std::istreambuf_iterator<char>()};
  if (!from.is_open()) throw std::runtime_error(file.string() + ": cannot be read");
  // "007.openmpi.json"
  const std::string name = file.stem().string();
  const std::size_t dot = name.find('.');
  try {
    return {dot == name.npos ? name : name.substr(dot + 1), perf::report_of_json(text)};
  } catch (const std::runtime_error& wrong) {
    throw std::runtime_error(file.string() + ": " + wrong.what());
  }
}

std::vector<fs::path> sorted(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Launches of one benchmark must measure the same thing. Only startup may mix transports.
void require_same_subject(const perf::benchmark& of) {
  const perf::report& first = of.launches.front().what;
  for (const perf::launch& one : of.launches) {
    const perf::report& r = one.what;
    const bool same_way = r.transport == first.transport || first.command == "startup";
    if (r.command != first.command || r.ranks != first.ranks || r.binding != first.binding ||
        r.contents != first.contents || !same_way)
      throw std::runtime_error(of.name + " has launches of different things: " + first.command + " on " +
                               std::to_string(first.ranks) + " ranks over " + first.transport + ", and " +
                               r.command + " of " + one.peer + " on " + std::to_string(r.ranks) +
                               " ranks over " + r.transport);
  }
}

perf::benchmark read_benchmark(const fs::path& folder) {
  perf::benchmark of{folder.filename().string(), {}};
  for (const fs::path& file : sorted(folder))
    if (file.extension() == ".json") of.launches.push_back(read_launch(file));
  if (!of.launches.empty()) require_same_subject(of);
  return of;
}

std::vector<perf::benchmark> read_all(const fs::path& folder) {
  std::vector<perf::benchmark> all;
  for (const fs::path& one : sorted(folder)) {
    if (!fs::is_directory(one)) continue;
    perf::benchmark of = read_benchmark(one);
    if (!of.launches.empty()) all.push_back(std::move(of));
  }
  if (all.empty()) throw std::runtime_error(folder.string() + " has no launches");
  return all;
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream to(file);
  to << text;
  if (!to.flush()) throw std::runtime_error(file.string() + ": cannot be written");
}

std::string markdown_of_all(const std::vector<perf::benchmark>& all, const std::string& method,
                            bool pictures) {
  std::string text = "# Results\n\n" + method + "\n\nMachine: " + all.front().launches.front().what.machine +
                     ". Times are of one operation, `median (smallest..largest over the launches)`; how they "
                     "are measured is in "
                     "perf/README.md, what a place is in perf/NOTES.md.\nA ratio is ours to the rival's, of "
                     "launches one after the other in one "
                     "place.\n";
  text += perf::markdown_of_ratios(all) + perf::markdown_of_targets(all) + "\n## Measurements\n";
  for (const perf::benchmark& of : all) {
    text += perf::markdown_of(of);
    if (pictures && !perf::gnuplot_script(of, "").empty())
      text += "\n![" + of.name + "](" + of.name + ".svg)\n";
  }
  return text;
}

bool all_good(const std::vector<perf::benchmark>& all) {
  return std::all_of(all.begin(), all.end(), [](const perf::benchmark& of) {
    return std::all_of(of.launches.begin(), of.launches.end(),
                       [](const perf::launch& one) { return one.what.good(); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, output, unpaired, method = "Launches of tutti-perf and its rivals, as they were found.";
  CLI::App app("Compares launches of tutti-perf, of its rivals and of the limit.", "perf-compare");
  app.add_option("folder", folder, "of the launches")->required();
  app.add_option("--output", output, "where results.md, results.json and the scripts of the pictures go");
  app.add_option("--method", method, "a sentence for the reader: when, how many launches, what was special");
  app.add_option("--unpaired", unpaired, "only print the rivals of this case that are to be launched again");
  if (const std::optional<int> code = perf::parse(app, argc, argv)) return *code;
  try {
    if (!unpaired.empty()) {
      for (const std::string& rival : perf::unpaired(read_benchmark(fs::path(folder) / unpaired)))
        std::puts(rival.c_str());
      return 0;
    }
    const std::vector<perf::benchmark> all = read_all(folder);
    if (output.empty()) {
      std::fputs(markdown_of_all(all, method, false).c_str(), stdout);
    } else {
      fs::create_directories(output);
      write(fs::path(output) / "results.md", markdown_of_all(all, method, true));
      write(fs::path(output) / "results.json", perf::json_of(all, method));
      for (const perf::benchmark& of : all) {
        const std::string script = perf::gnuplot_script(of, of.name + ".svg");
        if (!script.empty()) write(fs::path(output) / (of.name + ".gnuplot"), script);
      }
    }
    return all_good(all) ? 0 : 1;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "perf-compare: %s\n", failure.what());
    return 2;
  }
}
