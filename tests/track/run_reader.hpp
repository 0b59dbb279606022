// SPDX-License-Identifier: Apache-2.0
// Reads a run on disk strictly, for the tests.
#pragma once

#include "track/event_reader.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(contents(path));
}

// The only run in `directory`.
inline std::filesystem::path only_run(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> runs;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename() != ".tutti") runs.push_back(entry.path());
  if (runs.size() != 1)
    throw std::runtime_error(std::to_string(runs.size()) + " runs in " + directory.string());
  return runs.front();
}

// All whole lines. Only the last may be truncated.
inline std::vector<nlohmann::json> read_lines(const std::filesystem::path& run, int rank) {
  std::vector<nlohmann::json> lines;
  const std::string all = contents(run / ("rank-" + std::to_string(rank) + ".jsonl"));
  for (std::size_t begin = 0, end; (end = all.find('\n', begin)) != all.npos; begin = end + 1)
    lines.push_back(nlohmann::json::parse(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                          all.begin() + static_cast<std::ptrdiff_t>(end)));
  return lines;
}

inline std::vector<nlohmann::json> lines_of(const std::filesystem::path& run, int rank,
                                            const std::string& name) {
  std::vector<nlohmann::json> lines = read_lines(run, rank);
  std::erase_if(lines, [&](const nlohmann::json& line) { return line.value("name", "") != name; });
  return lines;
}

// The event files of a directory, in the order of TensorBoard.
inline std::vector<read_file> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<read_file> read;
  for (const auto& file : files) read.push_back(read_events(contents(file)));
  return read;
}

// The event file of a rank that was started once.
inline read_file events_of(const std::filesystem::path& run, int rank) {
  const std::filesystem::path folder = run / ("rank_" + std::to_string(rank));
  std::vector<read_file> files = event_files(std::filesystem::exists(folder) ? folder : run);
  if (files.size() != 1)
    throw std::runtime_error(std::to_string(files.size()) + " event files of rank " + std::to_string(rank) +
                             " in " + run.string());
  return std::move(files.front());
}

}  // namespace tutti::test
