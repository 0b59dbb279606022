// SPDX-License-Identifier: Apache-2.0
#include "report/run_data.hpp"

#include "base/process_state.hpp"
#include "base/text.hpp"
#include "report/run_files.hpp"
#include "track/run_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>

namespace tutti::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string label_prefix = "label-";
constexpr std::size_t console_bytes = 64 << 10;
constexpr std::size_t most_facts_bytes = 64 << 20;

// Discarded if it is damaged. Deep values are: their destruction and their text would be recursive.
json parsed(const std::string& text) {
  constexpr int deepest = 100;
  try {
    return json::parse(text, [](int depth, json::parse_event_t, const json&) {
      if (depth > deepest) throw std::runtime_error("nested");
      return true;
    });
  } catch (const std::exception&) {
    return json::value_t::discarded;
  }
}

// Missing values, or values of another type, become `otherwise`: the file may be of a later version.
template <class T>
T get(const json& object, const char* key, T otherwise) {
  try {
    return object.value<T>(key, otherwise);
  } catch (const json::exception&) {
    return otherwise;
  }
}

// JSON has no "NaN", "Infinity" and "-Infinity": they are texts.
double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("no number");
}

std::string text_of_value(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

rank_state state_of(const json& status, double heartbeat) {
  const std::string said = get<std::string>(status, "state", "running");
  if (said == "finished") return rank_state::finished;
  if (said == "closed") return rank_state::closed;
  const double patience = std::max(10.0, 5 * get<double>(status, "heartbeat_seconds", 2));
  const rank_state otherwise =
      track::seconds_since_1970() - heartbeat > patience ? rank_state::unresponsive : rank_state::running;
  const track::process_identity here = track::this_process();
  if (get<std::string>(status, "boot", "") == here.boot) {
    // A container's numbers mean other processes here, or none.
    if (get<std::uint64_t>(status, "pid_space", here.pid_space) != here.pid_space) return otherwise;
    const auto pid = get<std::int64_t>(status, "pid", 0);
    const std::uint64_t now = base::start_of_process(pid);
    if (now == 0 || now != get<std::uint64_t>(status, "process_started_ticks", 1)) return rank_state::died;
    // Its program may have been replaced, and its writer may have ended.
    return base::state_of_process(pid) == base::process_state::stopped ? rank_state::stopped : otherwise;
  }
  // The machine has been restarted since, unless another one has its name.
  if (get<std::string>(status, "host", "") == here.host && otherwise == rank_state::unresponsive)
    return rank_state::died;
  return otherwise;
}

void add_line(const json& line, rank_data& to) {
  // at() and value() throw if something is of another type.
  const auto kind = line.at("kind").get<std::string>(), name = line.value<std::string>("name", "");
  const auto step = line.value<std::int64_t>("step", 0);
  if (kind == "scalar") {
    const double number = number_of(line.at("value"));  // before there is a series
    to.series[name].push_back({static_cast<double>(step), number});
  } else if (kind == "text") {
    to.texts.push_back({name, line.at("value").get<std::string>(), step});
  } else if (kind == "hyperparameters") {
    for (const auto& [key, value] : line.at("values").get_ref<const json::object_t&>())
      to.hyperparameters[key] = text_of_value(value);
  } else if (kind == "histogram") {
    const histogram_data h{step, number_of(line.at("min")), number_of(line.at("max")),
                           line.at("limits").get<std::vector<double>>(),
                           line.at("counts").get<std::vector<double>>()};
    to.histograms[name] = h;
  } else if (kind == "image") {
    to.images.push_back({name, get<std::string>(line, "file", ""), 0, step});
  } else if (kind == "artifact") {
    to.artifacts.push_back(
        {name, get<std::string>(line, "file", ""), get<std::uint64_t>(line, "bytes", 0), step});
  }
}

// The number in "rank-7"; -1: another name.
int rank_in(const std::string& stem) {
  const auto rank = stem.starts_with("rank-") ? base::to_number<unsigned>(stem.substr(5)) : std::nullopt;
  return rank && *rank < 1'000'000'000 ? static_cast<int>(*rank) : -1;
}

// Whether files of this stem are of a rank or of another label.
bool is_writer(const std::string& stem) { return rank_in(stem) >= 0 || stem.starts_with(label_prefix); }

// Of points of one step the last stays; ascending.
void keep_last(std::vector<point>& all) {
  std::map<double, double> last;
  for (const point& p : all) last.insert_or_assign(last.end(), p.step, p.value);
  all.clear();
  for (const auto& [step, value] : last) all.push_back({step, value});
}

std::string left_out(const std::string& file, const rank_data& r) {
  const bool one = r.unreadable_lines == 1;
  return fmt::format(
      "{}: {} damaged {} left out{}", file, r.unreadable_lines, one ? "line is" : "lines are",
      one && r.state == rank_state::died ? ", as the last of a rank that was killed may be" : "");
}

// `inside` is the directory's place in the run, for paths.
rank_data read_rank(const run_files& files, const fs::path& directory, const fs::path& inside,
                    const std::string& name, std::vector<std::string>& damage) {
  rank_data r;
  r.rank = rank_in(name);
  const json status = parsed(files.contents_of(directory / (name + ".json"), most_facts_bytes).value_or(""));
  if (r.rank < 0) r.label = get<std::string>(status, "label", name.substr(label_prefix.size()));
  r.in_world = get<int>(status, "rank", r.rank);
  r.host = get<std::string>(status, "host", "");
  r.pid = get<std::int64_t>(status, "pid", 0);
  r.opened = get<double>(status, "opened", 0);
  r.heartbeat = get<double>(status, "heartbeat", 0);
  r.written = get<std::uint64_t>(status, "written", 0);
  r.dropped = get<std::uint64_t>(status, "dropped", 0);
  r.failed = get<std::uint64_t>(status, "failed", 0);
  r.failure = get<std::string>(status, "failure", "");
  r.state = state_of(status, r.heartbeat);
  if (!status.is_object())
    damage.push_back(fmt::format("{} is damaged: the state of {} is not known",
                                 (inside / (name + ".json")).generic_string(), r.name()));

  std::uint64_t records = 0;
  files.for_each_line(directory / (name + ".jsonl"), [&](const std::string& line) {
    const json record = parsed(line);
    try {
      if (!record.is_object()) throw std::runtime_error("no object");
      add_line(record, r);
      if (!get<std::string>(record, "name", "").starts_with("system/")) ++records;
    } catch (const std::exception&) {
      ++r.unreadable_lines;
    }
  });
  if (r.unreadable_lines > 0) damage.push_back(left_out((inside / (name + ".jsonl")).generic_string(), r));
  for (auto& [series, points] : r.series) keep_last(points);
  r.written = std::max(r.written, records);  // a full disk takes no new status
  for (auto* named : {&r.images, &r.artifacts})
    for (file_data& f : *named) f.path = (inside / f.path).generic_string();
  r.output = files.end_of(directory / "console" / (name + ".out"), console_bytes);
  r.error = files.end_of(directory / "console" / (name + ".err"), console_bytes);
  return r;
}

void add_pairs(const json& object, std::vector<std::pair<std::string, std::string>>& to) {
  if (object.is_object())
    for (const auto& [key, value] : object.items()) to.emplace_back(key, text_of_value(value));
}

}  // namespace

const char* name_of(rank_state s) noexcept {
  constexpr const char* names[] = {"finished", "closed", "running", "stopped", "died", "unresponsive"};
  return names[static_cast<std::size_t>(s)];
}

int run_data::absent() const {
  std::set<int> there;
  for (const rank_data& r : ranks)
    if (r.in_world >= 0 && r.in_world < size) there.insert(r.in_world);
  return size - static_cast<int>(there.size());
}

run_data read_run(const fs::path& directory) {
  run_data run;
  run.directory = directory;
  const run_files files(directory);
  std::error_code ignored;
  fs::path facts_at = directory / "run.json";
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string stem = entry.path().stem().string();
    const bool is_directory = entry.is_directory(ignored);
    if (!is_directory && entry.path().extension() == ".json" && is_writer(stem))
      run.ranks.push_back(read_rank(files, directory, {}, stem, run.damage));
    if (is_directory && is_writer(name) && fs::exists(entry.path() / "run.json", ignored)) {
      run.ranks.push_back(read_rank(files, entry.path(), name, name, run.damage));
      facts_at = entry.path() / "run.json";
    }
  }
  if (run.ranks.empty())
    throw std::runtime_error(
        directory.string() +
        " is no run: it has neither a rank-0.json nor a rank-0/run.json; a run is a directory "
        "below options::directory, such as runs/2026-01-31_23-59-59");
  std::ranges::sort(run.ranks, {}, [](const rank_data& r) {
    return std::make_tuple(r.rank < 0, r.rank, std::cref(r.label));
  });
  int next = 0;
  for (rank_data& r : run.ranks) {
    if (r.rank < 0) r.rank = next;
    next = r.rank + 1;
  }

  std::sort(run.damage.begin(), run.damage.end());  // files come in any order
  const json facts = parsed(files.contents_of(facts_at, most_facts_bytes).value_or(""));
  if (!facts.is_object())
    run.damage.push_back(fmt::format("{} is missing or damaged: the run's command and versions are not known",
                                     facts_at.lexically_relative(directory).generic_string()));
  run.name = get<std::string>(facts, "name", directory.filename().string());
  run.created = get<double>(facts, "created", 0);
  // A run that goes on may have more ranks than at its start.
  run.size = get<int>(facts, "ranks", 0);
  for (const rank_data& r : run.ranks) run.size = std::max(run.size, r.in_world + 1);
  const json git = get<json>(facts, "git", {});
  const auto branch = get<std::string>(git, "branch", "");
  run.facts = {
      {"command", fmt::format("{}", fmt::join(get<std::vector<std::string>>(facts, "command", {}), " "))},
      {"working directory", get<std::string>(facts, "working_directory", "")},
      {"git", get<std::string>(git, "revision", "") + (branch.empty() ? "" : " (" + branch + ")")},
      {"layout", get<std::string>(facts, "layout", "")}};
  add_pairs(get<json>(facts, "versions", {}), run.facts);
  add_pairs(get<json>(facts, "environment", {}), run.environment);
  return run;
}

bool is_machine_series(const std::string& name) {
  return name.starts_with("system/") || name.starts_with("communication/") || name.starts_with("time/") ||
         name.starts_with("step/");
}

std::vector<time_split> times_of(const run_data& run) {
  std::vector<time_split> all(run.ranks.size());
  std::map<double, std::pair<double, std::size_t>> slowest;  // by step: the time, and the rank
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    const auto sum = [&](const char* name) {
      double seconds = 0;
      const auto found = run.ranks[i].series.find(name);
      if (found != run.ranks[i].series.end())
        for (const point& p : found->second)
          if (std::isfinite(p.value)) seconds += p.value;
      return seconds;
    };
    all[i].compute = sum("time/compute");
    all[i].communication = sum("time/communication");
    all[i].waiting = sum("time/waiting");
    all[i].hidden = sum("time/hidden");
    const auto computed = run.ranks[i].series.find("time/compute");
    if (computed == run.ranks[i].series.end()) continue;
    all[i].steps = computed->second.size();
    for (const point& p : computed->second) {
      const auto [at, first] = slowest.try_emplace(p.step, p.value, i);
      if (!first && p.value > at->second.first) at->second = {p.value, i};
    }
  }
  for (const auto& [step, who] : slowest) ++all[who.second].slowest;
  if (slowest.empty()) all.clear();
  return all;
}

}  // namespace tutti::report
