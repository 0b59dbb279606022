// SPDX-License-Identifier: Apache-2.0
#include "flight/trace_writer.hpp"

#include "base/env.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "flight/explanation.hpp"
#include "flight/recordings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::flight {
namespace {

// More than the number of occupied places that a recorder skips.
constexpr std::size_t longest_gap = 64;
constexpr std::size_t flush_at = 1 << 16;
constexpr std::size_t most_arrivals = 4096;
constexpr std::size_t most_rows = 64;

// Tracks of a rank: a hundred rows for each group, so that overlapping events are side by side.
enum group { asleep = 1, operations = 100, spans = 200, computations = 300 };

struct event_form {
  const char* category;
  int rows;  // group
  const char* row;
};
event_form form_of(std::uint8_t kind) noexcept {
  if (kind == kind_asleep) return {"loop", group::asleep, "loop asleep"};
  if (kind == kind_compute) return {"compute", group::computations, "compute"};
  if (kind == kind_span) return {"span", group::spans, "program"};
  return {"operation", group::operations, "operations"};
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      quoted += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte >= 0x7f)
      quoted += fmt::format("\\u{:04x}", byte);  // bytes beyond ASCII as if they were Latin-1: always valid
    else
      quoted += c;
  }
  return quoted + '"';
}

std::uint64_t most_trace_bytes() {
  return static_cast<std::uint64_t>(base::env_integer("TUTTI_TRACE_MIB", 1, 1 << 20).value_or(1024)) << 20;
}

trace_writer::trace_writer(const std::string& path, trace_clock clock, std::uint64_t most_bytes)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)),
      clock_(clock),
      most_bytes_(most_bytes) {
  if (!file_) throw std::system_error(errno, std::generic_category(), path);
  buffer_ = "[\n{\"name\":\"tutti\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"format\":1}}";
}

void trace_writer::put(std::string_view event) {
  if (bytes_ + buffer_.size() + event.size() > most_bytes_) {
    ++counts_.left_out;
    return;
  }
  ++counts_.events;
  buffer_ += ",\n";
  buffer_ += event;
  if (buffer_.size() >= flush_at) flush();
}

void trace_writer::flush() {
  if (counts_.error == 0 && base::write_all(file_.get(), buffer_) < buffer_.size()) counts_.error = errno;
  bytes_ += buffer_.size();
  buffer_.clear();
}

void trace_writer::poll(int rank, const recording_view& of, std::string_view host) {
  const head& h = of.head();
  if (finished_ || !h.is_written()) return;
  const std::uint64_t recorder = h.base_cycles.load(std::memory_order_relaxed);
  rank_state& state = ranks_[&h];
  if (state.recorder != recorder) {
    // The rank was restarted. What its predecessor left open has been overwritten.
    state = rank_state{};
    state.process = free_process(rank);
    state.recorder = recorder;
    state.memory = of;
  }
  if (!state.memory) return;
  if (state.rank != rank) {  // it may come to another world
    state.rank = rank;
    const std::string name =
        fmt::format("rank {} (pid {}{}{})", rank, h.pid(), host.empty() ? "" : " on ", host);
    put_name("process", state.process, 0, name, rank);
  }
  const time_map times(h);
  drain(state, state.spans, of.spans(), of.sizes().spans(), times);
  drain(state, state.operations, of.operations(), of.sizes().operations, times);
}

// The rank's number, unless another recording has it: a process may be one rank of several worlds.
int trace_writer::free_process(int rank) const {
  constexpr int next = 1'000'000;
  const auto is_taken = [this](int process) {
    return std::ranges::any_of(
        ranks_, [process](const auto& one) { return one.second.memory && one.second.process == process; });
  };
  while (is_taken(rank)) rank += next;
  return rank;
}

void trace_writer::drain(rank_state& state, ring& r, const entry* entries, std::size_t count,
                         const time_map& times) {
  operation_snapshot o;
  std::erase_if(r.open, [&](const auto& pending) {
    if (!read(entries[pending.first], o, state.memory, times)) return false;  // being written at this moment
    if (o.number == pending.second && o.how == state::pending) return false;
    if (o.number == pending.second)
      write_event(state, o, times.now_ns());
    else
      ++counts_.lost;
    return true;
  });
  std::size_t passed = 0;
  for (std::size_t place = r.place; passed < longest_gap; place = (place + 1) % count) {
    // Free, or being written: later ones may already be there, but this one comes first.
    if (!read(entries[place], o, state.memory, times)) break;
    if (o.number <= r.seen) {
      ++passed;
      continue;
    }
    counts_.lost += o.number - r.seen - 1;  // the ring has been overwritten
    passed = 0;
    r.seen = o.number;
    r.place = (place + 1) % count;
    if (o.how == state::pending)
      r.open.emplace(place, o.number);
    else
      write_event(state, o, times.now_ns());
  }
}

const communicator_snapshot* trace_writer::communicator(rank_state& state, std::uint32_t id) {
  const auto known = state.communicators.find(id);
  if (known != state.communicators.end()) return &known->second;
  for (std::size_t i = 0; i < communicators; ++i) {
    auto one = read(state.memory.communicator_entries()[i], true);
    if (one && one->id == id) return &(state.communicators[id] = std::move(*one));
  }
  return nullptr;
}

void trace_writer::put_name(const char* of, int process, int track, const std::string& name, int sort_index) {
  put(fmt::format(R"({{"name":"{}_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", of, process,
                  track, json_string(name)));
  put(fmt::format(R"({{"name":"{}_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", of,
                  process, track, sort_index));
}

int trace_writer::row_for(rank_state& state, int group, const char* name, std::int64_t start,
                          std::int64_t end) {
  std::vector<std::int64_t>& ends = state.rows[group];
  std::size_t i = 0;
  while (i < ends.size() && ends[i] > start && i + 1 < most_rows) ++i;
  const int track = group + static_cast<int>(i);
  if (i == ends.size()) {
    ends.push_back(end);
    put_name("thread", state.process, track, i == 0 ? name : fmt::format("{} {}", name, i + 1), track);
  }
  ends[i] = end;
  return track;
}

void trace_writer::write_event(rank_state& state, const operation_snapshot& o, std::int64_t now_ns) {
  const std::int64_t end = std::max(o.how == state::pending ? now_ns : o.end_ns, o.start_ns);
  const event_form form = form_of(o.kind);
  const int track = row_for(state, form.rows, form.row, o.start_ns, end);
  std::vector<std::string> arguments;
  if (o.kind == kind_compute) arguments.push_back(fmt::format(R"("at":{})", json_string(o.where())));
  if (o.kind == kind_span) arguments.push_back(fmt::format(R"("line":{})", o.line));
  if (form.rows == group::operations) {
    const communicator_snapshot* const c = communicator(state, o.communicator);
    arguments.push_back(fmt::format(R"("communicator":{},"bytes":{})",
                                    json_string(c != nullptr ? c->name : fmt::format("{}", o.communicator)),
                                    o.bytes));
    arguments.push_back(o.sequence != 0 ? fmt::format(R"("sequence":{})", o.sequence)
                                        : fmt::format(R"("peer":{},"tag":{})", o.peer, o.tag));
    if (!o.text.empty()) arguments.push_back(fmt::format(R"("at":{})", json_string(o.where())));
    if (o.sequence != 0 && c != nullptr) note_arrival(state, *c, o);
  }
  if (o.how != state::done) {
    const char* const how = o.how == state::failed      ? "failed"
                            : o.how == state::cancelled ? "cancelled"
                                                        : "never ended";
    arguments.push_back(fmt::format(R"("state":"{}")", how));
  }
  put(fmt::format(
      R"({{"name":{},"cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{{}}}}})",
      json_string(o.kind == kind_span ? o.text : name_of_kind(o.kind)), form.category,
      microseconds(o.start_ns), static_cast<double>(end - o.start_ns) / 1000, state.process, track,
      fmt::join(arguments, ",")));
}

// Records the last rank to come to a collective: the one that the others have waited for.
void trace_writer::note_arrival(const rank_state& state, const communicator_snapshot& c,
                                const operation_snapshot& o) {
  if (c.size < 2) return;
  // Each start of a job has a world of its own.
  const std::uint64_t world = state.memory.head().world.load(std::memory_order_relaxed);
  const auto found = arrivals_.try_emplace({world, o.communicator, o.sequence}).first;
  arrivals& a = found->second;
  if (a.came == 0 || o.start_ns < a.first_ns) a.first_ns = o.start_ns;
  if (a.came == 0 || o.start_ns > a.last_ns) {
    a.last_ns = o.start_ns;
    a.last_rank = state.rank;
    a.last_process = state.process;
  }
  if (++a.came == c.size) {
    const std::int64_t behind = a.last_ns - a.first_ns;
    ++collectives_;
    lateness& l = last_to_come_[a.last_rank];
    ++l.times;
    l.behind_ns += behind;
    put(fmt::format(
        R"({{"name":"last to come","cat":"operation","ph":"i","s":"p","ts":{:.3f},"pid":{},"tid":{},"args":{{"communicator":{},"sequence":{},"behind_us":{:.3f}}}}})",
        microseconds(a.last_ns), a.last_process, static_cast<int>(group::operations), json_string(c.name),
        o.sequence, static_cast<double>(behind) / 1000));
    arrivals_.erase(found);
  }
  if (arrivals_.size() > most_arrivals) arrivals_.erase(arrivals_.begin());
}

void trace_writer::close_open(rank_state& state) {
  if (!state.memory) return;
  const time_map times(state.memory.head());
  operation_snapshot o;
  const auto close = [&](ring& r, const entry* entries) {
    for (const auto& [place, number] : r.open)
      if (read(entries[place], o, state.memory, times) && o.number == number)
        write_event(state, o, times.now_ns());
  };
  close(state.operations, state.memory.operations());
  close(state.spans, state.memory.spans());
  state.memory = {};
}

std::vector<std::string> trace_writer::losses() const {
  std::vector<std::string> all;
  if (counts_.error != 0)
    all.push_back(fmt::format("that file is incomplete: {}", base::write_error_text(counts_.error)));
  if (counts_.left_out != 0)
    all.push_back(fmt::format("{} more were left out of it: it has {} MiB (TUTTI_TRACE_MIB sets how many)",
                              counts_.left_out, most_bytes_ >> 20));
  if (counts_.lost != 0)
    all.push_back(
        fmt::format("{} operations were too many for the recorder (TUTTI_FLIGHT_OPERATIONS makes it larger)",
                    counts_.lost));
  return all;
}

void trace_writer::over(const recording_view& of) {
  if (const auto found = ranks_.find(&of.head()); found != ranks_.end()) close_open(found->second);
}

void trace_writer::finish() {
  if (std::exchange(finished_, true)) return;
  for (auto& [head, state] : ranks_) close_open(state);
  buffer_ += "\n]\n";
  flush();
}

// ---- TUTTI_TRACE ----

namespace {

class process_trace;
process_trace* instance = nullptr;

// All uses of `writer_` are under the lock of for_each_recording.
class process_trace {
 public:
  explicit process_trace(std::string path)
      : path_(std::move(path)), thread_([this](const std::stop_token& stop) { work(stop); }) {}
  ~process_trace() {
    instance = nullptr;
    if (is_parents()) {  // a child has neither the thread nor the ranks
      thread_.detach();
      static_cast<void>(writer_.release());
      return;
    }
    thread_.request_stop();
    thread_.join();
    check_all();
    if (writer_ == nullptr) return;
    writer_->finish();
    for (const std::string& loss : writer_->losses())
      base::log_warning(fmt::format("TUTTI_TRACE '{}': {}", path_, loss));
  }
  // In a forked child.
  bool is_parents() const noexcept { return ::getpid() != process_; }

  void poll(const recording_view& of) {
    const head& h = of.head();
    if (!has_rank(h)) return;
    if (writer_ == nullptr) {
      // When one rank is a member, all of this process have started to join: they are in the world.
      if (h.at() == phase::joining || failed_) return;
      std::set<int> ranks;
      for_each_recording([&ranks](recording_view other) {
        if (has_rank(other.head())) ranks.insert(other.head().world_rank());
      });
      const bool whole = static_cast<int>(ranks.size()) >= h.world_size();
      open(whole ? path_ : path_ + ".rank-" + std::to_string(h.world_rank()));
      if (writer_ == nullptr) return;
    }
    writer_->poll(h.world_rank(), of, "");
    writer_->flush();
  }
  void over(const recording_view& of) {
    poll(of);
    if (writer_ != nullptr) writer_->over(of);
  }

 private:
  static bool has_rank(const head& h) noexcept { return h.is_written() && h.at() != phase::none; }
  void open(const std::string& path) {
    try {
      writer_ = std::make_unique<trace_writer>(path, trace_clock{}, most_bytes_);
    } catch (const std::exception& e) {
      failed_ = true;
      base::log_warning(std::string("TUTTI_TRACE: no trace is written: ") + e.what());
    }
  }
  void check_all() {
    for_each_recording([this](recording_view of) { poll(of); });
  }
  void work(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any pause;
    while (!stop.stop_requested()) {
      check_all();
      pause.wait_for(lock, stop, between_trace_polls, [] { return false; });
    }
  }

  const std::string path_;
  const std::uint64_t most_bytes_ = most_trace_bytes();
  const pid_t process_ = ::getpid();
  bool failed_ = false;
  std::unique_ptr<trace_writer> writer_;
  std::jthread thread_;
};

}  // namespace

bool trace_this_process() {
  static const std::optional<std::string> path = base::env_string("TUTTI_TRACE");
  if (!path) return false;
  static process_trace trace(*path);
  instance = &trace;
  return true;
}

void write_last(const recording_view& of) noexcept {
  if (instance != nullptr && !instance->is_parents()) instance->over(of);
}

}  // namespace tutti::flight
