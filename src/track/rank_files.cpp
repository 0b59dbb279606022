// SPDX-License-Identifier: Apache-2.0
#include "track/rank_files.hpp"

#include "base/env.hpp"
#include "base/hmac.hpp"
#include "base/text.hpp"
#include "track/event_encoding.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

namespace tutti::track {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

const char* name_of(layout l) {
  constexpr const char* names[] = {"single_run", "run_per_rank", "rank_0_only"};
  return names[static_cast<std::size_t>(l)];
}

// Values that JSON lacks are strings.
json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

json object_of(const hyperparameter_map& values) {
  json all = json::object();
  for (const auto& [name, v] : values) {
    const auto* const real = std::get_if<double>(&v.held());
    all[name] =
        real != nullptr ? number(*real) : std::visit([](const auto& held) { return json(held); }, v.held());
  }
  return all;
}

// Bytes that are not UTF-8 become U+FFFD, so that every reader accepts the text.
std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }
std::string line_of(const json& object) { return text_of(object) + "\n"; }

// Converts the name of a series to one of a file.
std::string file_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; },
      '_');
  return name.substr(0, 100);
}

// The same for what identifies a run: a name that this changes also gets a hash, so no two become one.
std::string word_of(const std::string& name) {
  const std::string word = file_name(name);
  if (word == name) return word;
  const base::digest hash =
      base::hmac_sha256("name", {reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
  return word + "." + base::to_hex(std::span(hash).first(6));
}

std::string default_label(const extend::identity& who, const process_identity& process) {
  return who.rank >= 0 ? "rank_" + std::to_string(who.rank)
                       : file_name(process.host) + "_" + std::to_string(process.pid);
}

// "rank-3" for "rank_3", as without labels; no two labels have one stem.
std::string stem_of(const std::string& label) {
  const auto rank = label.starts_with("rank_") ? base::to_number<unsigned>(label.substr(5)) : std::nullopt;
  const bool is_rank = rank && *rank < 1'000'000'000 && label == fmt::format("rank_{}", *rank);
  return is_rank ? "rank-" + label.substr(5) : "label-" + label;
}

// The folder of a label's event files, which TensorBoard shows as the name of its line. No two labels share
// one, and none equals that of another file or folder of the run.
std::string event_folder_of(const std::string& label) {
  const bool is_taken = label == "artifacts" || label == "console" || label == "images" ||
                        label.starts_with("rank-") || label.starts_with("label-") ||
                        label.starts_with("events-") || label.ends_with(".json") || label.ends_with(".jsonl");
  return is_taken ? "events-" + label : label;
}

// The name of a new event file, but for its writer. TensorBoard finds the files by it, and takes them in its order.
std::string event_file_name(const fs::path& folder, double now) {
  const std::string prefix = "events.out.tfevents.";
  auto second = static_cast<long long>(now);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix))
      second = std::max(second, std::strtoll(name.c_str() + prefix.size(), nullptr, 10) + 1);
  }
  return fmt::format("{}{:010d}", prefix, second);
}

// The world of the job has the same id at each start of the job; every other communicator has one of its own.
std::string default_id(const extend::identity& who, std::uint64_t number, const std::string& name) {
  std::set<std::pair<std::string, std::int64_t>> processes;
  std::size_t unknown = 0;  // of a large world: ranks that this one has not met
  for (const extend::place& p : who.places) {
    if (p.pid == 0)
      ++unknown;
    else
      processes.emplace(p.host, p.pid);
  }
  const auto job = base::env_string("TUTTI_JOB_ID");
  const bool is_job = job && who.name == "world" && processes.size() + unknown == who.places.size() &&
                      base::env_string("WORLD_SIZE") == std::to_string(who.places.size());
  const std::string origin =
      is_job ? "job-" + word_of(*job) : fmt::format("{:016x}-{}", who.world, who.communicator);
  return fmt::format("{}-{}{}{}", origin, number, name.empty() ? "" : "-", word_of(name));
}

[[noreturn]] void fail_to(const char* what, const fs::path& path, const std::string& why) {
  throw error(errc::system, fmt::format("tracking cannot {} {}: {}", what, path.string(), why));
}

std::string append_error_text(int code) {
  return code == ENOENT ? "it was deleted while the run goes on" : base::write_error_text(code);
}

// "model.bin", "model-2.bin", ...
fs::path free_path(const fs::path& wanted) {
  std::error_code code;
  fs::path path = wanted;
  for (int n = 2; fs::exists(path, code); ++n)
    path = wanted.parent_path() /
           (wanted.stem().string() + "-" + std::to_string(n) + wanted.extension().string());
  return path;
}

}  // namespace

bool is_inside(std::string_view name) {
  const fs::path path(name);
  if (name.empty() || name.size() > 1000 || name.find('\0') != name.npos || path.is_absolute() ||
      !path.has_filename())
    return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) {
    return part == ".." || part == "." || part.native().size() > 200;
  });
}

rank_files::rank_files(const extend::identity& who, const options& o, std::uint64_t number)
    : who_(who), options_(o), process_(this_process()), opened_(seconds_since_1970()) {
  check_run_name(o.name);
  label_ = !o.label.empty() ? o.label : default_label(who, process_);
  check_word("label", label_);
  stem_ = stem_of(label_);
  if (!o.id.empty()) check_word("id", o.id);
  const std::string id = !o.id.empty() ? o.id : default_id(who, number, o.name);
  const std::string identity = o.id.empty() ? id : "id-" + id;
  const std::string start =
      who.rank >= 0 ? fmt::format("{:016x}-{}-{}", who.world, who.communicator, number)
                    : fmt::format("{}-{}-{}-{}", process_.boot, process_.pid, process_.started_ticks, number);
  check_resume(o.directory, identity, start, o.resume, id);
  const std::string wanted = !o.name.empty() ? o.name : !o.id.empty() ? o.id : name_of_now();
  directory_ = claim_run_directory(o.directory, identity, wanted);
  const std::string name = directory_.filename().string();
  if (o.ranks == layout::run_per_rank) directory_ /= stem_;
  std::error_code code;
  const fs::path events = o.ranks == layout::run_per_rank ? directory_ : directory_ / event_folder_of(label_);
  fs::create_directories(events, code);
  if (!code && o.console) fs::create_directories(directory_ / "console", code);
  if (code) fail_to("make", directory_, code.message());

  lines_file_ = append_file(directory_ / (stem_ + ".jsonl"));
  if (!lines_file_.lock())
    throw error(errc::invalid_argument, "another log writes to the label \"" + label_ + "\" of the run in " +
                                            directory_.string() +
                                            "; another options::label has a curve of its own");
  if (const int torn = lines_file_.cut_to_whole_lines(); torn != 0)
    fail_to("go on in", directory_ / (stem_ + ".jsonl"), base::write_error_text(torn));
  if (!create_file_once(directory_ / "run.json", run_facts_line(name)))
    fail_to("write", directory_ / "run.json", base::write_error_text(errno));
  struct stat made{};
  if (::stat((directory_ / "run.json").c_str(), &made) == 0)
    origin_ = std::min(opened_, static_cast<double>(made.st_mtim.tv_sec));
  const std::string ending = stem_.starts_with("rank-") ? stem_.substr(5) : stem_;
  goes_on_ = lines_file_.size() > 0;
  events_file_ = append_file(events / fmt::format("{}.{}.{}.{}", event_file_name(events, opened_),
                                                  process_.host, process_.pid, ending));
  put_version(events_, opened_, goes_on_);
  flush();
  put_status("running", {}, "");
  if (!failure_.empty()) fail_to("write to", directory_, failure_);
}

std::string& rank_files::events_for(const record& r) {
  if (goes_on_ && tags_.insert(r.name).second) put_restart(events_, r);
  return events_;
}

std::string rank_files::run_facts_line(const std::string& name) const {
  json places = json::array();
  for (const extend::place& p : who_.places)
    places.push_back({{"rank", places.size()}, {"host", p.host}, {"pid", p.pid}});
  std::error_code ignored;
  const fs::path here = fs::current_path(ignored);
  const git_state git = git_of(here);
  return line_of(
      {{"format", 1},
       {"name", name},
       {"layout", name_of(options_.ranks)},
       {"id", options_.id.empty() ? fmt::format("{:016x}-{}", who_.world, who_.communicator) : options_.id},
       {"created", opened_},
       {"written_by_rank", who_.rank},
       {"communicator", who_.name},
       {"ranks", who_.places.size()},
       {"places", places},
       {"command", command_line()},
       {"working_directory", here.string()},
       {"git", {{"revision", git.revision}, {"branch", git.branch}}},
       {"versions", versions()},
       {"environment", environment()}});
}

bool rank_files::fail(std::string text) {
  constexpr std::size_t most = 500;
  if (failure_.size() < most && failure_.find(text) == failure_.npos)
    failure_ += (failure_.empty() ? "" : "; ") + text;
  return false;
}

bool rank_files::put_file(const std::string& folder, const std::string& name, std::string_view bytes,
                          const fs::path* from, std::string& path_in_run) {
  const fs::path path = free_path(directory_ / folder / stem_ / name);
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  if (code) return fail(path.string() + ": " + code.message());
  if (from != nullptr && !copy_contents(*from, path))
    return fail(from->string() + " as artifact " + name + ": " + base::write_error_text(errno));
  if (from == nullptr && !replace_file(path, std::string(bytes)))
    return fail(path.string() + ": " + base::write_error_text(errno));
  path_in_run = path.lexically_relative(directory_).generic_string();
  return true;
}

// Writes one line, and one event if TensorBoard has a kind for it.
struct rank_files::putter {
  rank_files& files;
  const record& r;

  // `more` is what records of this kind have beside their place.
  bool put_line(const char* kind, const json& more) const {
    json line = {{"kind", kind}, {"name", r.name}, {"step", r.step}, {"time", r.wall_time}};
    line.update(more);
    files.lines_ += line_of(line);
    return true;
  }
  bool operator()(double value) const {
    put_scalar(files.events_for(r), r, value);
    // Most records are scalars: by way of a json object one takes four times as long.
    fmt::format_to(std::back_inserter(files.lines_),
                   R"({{"kind":"scalar","name":{},"step":{},"time":{},"value":{}}})"
                   "\n",
                   text_of(r.name), r.step, r.wall_time, text_of(number(value)));
    return true;
  }
  bool operator()(const std::string& text) const {
    put_text(files.events_for(r), r, text);
    return put_line("text", {{"value", text}});
  }
  bool operator()(const std::vector<double>& values) const {
    const histogram h = histogram_of(values);
    put_histogram(files.events_for(r), r, h);
    return put_line("histogram", {{"min", h.min},
                                  {"max", h.max},
                                  {"sum", number(h.sum)},
                                  {"count", h.count},
                                  {"not_finite", h.not_finite},
                                  {"limits", h.limits},
                                  {"counts", h.counts}});
  }
  bool operator()(const image_record& i) const {
    const std::string png = png_of(i.width, i.height, i.channels, i.samples);
    std::string path;
    const bool kept = files.put_file("images", file_name(r.name) + "-" + std::to_string(r.step) + ".png", png,
                                     nullptr, path);
    put_image(files.events_for(r), r, i.width, i.height, i.channels, png);
    return put_line("image", {{"width", i.width}, {"height", i.height}, {"file", path}}) && kept;
  }
  bool operator()(const hyperparameter_map& values) const {
    for (const auto& [name, v] : values) files.hyperparameters_.insert_or_assign(name, v);
    // The set of each TensorBoard run would be a row of its own on its page: in a single run, only rank 0's
    // is written. Without a communicator (PyTorch's ranks), rank 0 is the label of that name.
    const bool is_rank_0 = files.who_.rank == 0 || (files.who_.rank < 0 && files.label_ == "rank_0");
    if (files.options_.ranks != layout::single_run || is_rank_0)
      put_hyperparameters(files.events_, r.wall_time, files.hyperparameters_);
    files.lines_ +=
        line_of({{"kind", "hyperparameters"}, {"time", r.wall_time}, {"values", object_of(values)}});
    return true;
  }
  bool operator()(const std::vector<std::byte>& bytes) const {
    return put_artifact({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, nullptr);
  }
  bool operator()(const fs::path& file) const { return put_artifact({}, &file); }
  bool put_artifact(std::string_view bytes, const fs::path* from) const {
    std::string path;
    if (!files.put_file("artifacts", r.name, bytes, from, path)) return false;
    std::error_code ignored;
    const auto size = fs::file_size(files.directory_ / path, ignored);
    return put_line("artifact", {{"file", path}, {"bytes", size}});
  }
};

bool rank_files::put(const record& r) { return std::visit(putter{*this, r}, r.said); }

bool rank_files::flush() {
  const int lines = lines_file_.append(lines_);
  const int events = events_file_.append(events_);
  lines_.clear();
  events_.clear();
  if (events != 0) fail("the event file: " + append_error_text(events));
  return lines == 0 || fail(stem_ + ".jsonl: " + append_error_text(lines));
}

void rank_files::put_status(std::string_view state, const totals& counts, std::string_view console) {
  const std::string status =
      line_of({{"rank", who_.rank},
               {"label", label_},
               {"host", process_.host},
               {"pid", process_.pid},
               {"pid_space", process_.pid_space},
               {"process_started_ticks", process_.started_ticks},
               {"boot", process_.boot},
               {"state", state},
               {"opened", opened_},
               {"heartbeat", seconds_since_1970()},
               {"heartbeat_seconds", std::chrono::duration<double>(options_.heartbeat).count()},
               {"written", counts.written},
               {"dropped", counts.dropped},
               {"failed", counts.failed},
               {"failure", failure_},
               {"console", console}});
  if (!replace_file(directory_ / (stem_ + ".json"), status))
    fail(stem_ + ".json: " + base::write_error_text(errno));
}

}  // namespace tutti::track
