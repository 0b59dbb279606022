// SPDX-License-Identifier: Apache-2.0
// rank_records: the flight recorders of this node's ranks, in memory of the launcher. It can read them while
// a rank computes, is stopped, or after it was killed. job_trace: their time line.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

#include "base/cycles.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "flight/explanation.hpp"
#include "flight/recordings.hpp"
#include "flight/snapshot.hpp"
#include "flight/trace_writer.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"

namespace tutti::launch {

class rank_records {
 public:
  // `operations` of each rank. If there is no memory for it, ranks keep their own and nothing is read here.
  rank_records(int ranks, std::size_t operations, bool elastic)
      : places_(static_cast<std::size_t>(ranks)), elastic_(elastic) {
    try {
      all_ = std::make_unique<flight::recordings>(ranks, flight::shape{operations});
    } catch (const std::system_error&) {
      // The kernel or a limit does not allow it: the job itself needs none of this.
    }
  }

  // The memory; null if there is none.
  flight::recordings* memory() const { return all_.get(); }

  // The ranks start, or start again.
  void begin_start(int first_rank) {
    first_rank_ = first_rank;
    started_ns_ = base::steady_ns();
    std::fill(places_.begin(), places_.end(), place{});
    if (all_ != nullptr) all_->clear();
  }
  void starting(int local_rank) {
    places_[static_cast<std::size_t>(local_rank)] = place{};
    // The records of a predecessor no longer matter.
    if (all_ != nullptr) all_->of(local_rank).head().ready.store(0, std::memory_order_relaxed);
  }
  void started(int local_rank, pid_t pid) { places_[static_cast<std::size_t>(local_rank)].pid = pid; }
  // Keeps what the rank's recorder says at this moment, and adds to `end` whether its main threw.
  void ended(outcome& end) {
    const auto local = static_cast<std::size_t>(end.rank - first_rank_);
    const auto [kind, at_ns] = thrown(local);
    end.thrown = kind;
    end.thrown_after = std::chrono::microseconds(std::max<std::int64_t>(at_ns - started_ns_, 0) / 1000);
    flight::rank_snapshot last = read(local);
    if (end.failed() || last.at != flight::phase::left) last.end = describe(end);
    places_[local].end = std::move(last);
  }
  // The process of the running rank whose main threw first, if it did so within the last `age`; -1: none.
  pid_t ends_by_exception(std::chrono::nanoseconds age) const {
    const place* first = nullptr;
    std::int64_t first_ns = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const auto [kind, at_ns] = thrown(i);
      if (kind != outcome::exception::own || (first != nullptr && first_ns <= at_ns)) continue;
      first = &places_[i];
      first_ns = at_ns;
    }
    return first == nullptr || first->end || base::steady_ns() - first_ns > age.count() ? -1 : first->pid;
  }

  // The records of every rank of this node, as of now.
  std::vector<flight::rank_snapshot> read() const {
    std::vector<flight::rank_snapshot> ranks;
    for (std::size_t i = 0; i < places_.size(); ++i) ranks.push_back(read(i));
    return ranks;
  }
  // The last operations of a rank that has ended, as lines for its report.
  std::string last_operations(int rank) const {
    constexpr std::size_t most = 6;
    const place& p = places_[static_cast<std::size_t>(rank - first_rank_)];
    if (!p.end || p.end->at == flight::phase::none) return {};
    return flight::last_operations(*p.end, most, "  > ");
  }

  struct activity {
    std::uint64_t progress = 0;  // increases whenever an operation of any rank starts or ends
    bool any_pending = false;
  };
  activity operations() const {
    activity all;
    for (int i = 0; all_ != nullptr && i < all_->ranks(); ++i) {
      const flight::head& h = all_->of(i).head();
      for (const flight::word* w : {&h.ready, &h.phase_, &h.started, &h.ended, &h.spans, &h.compute_running})
        all.progress += w->load(std::memory_order_relaxed);
      all.any_pending |= h.is_written() &&
                         h.started.load(std::memory_order_relaxed) != h.ended.load(std::memory_order_relaxed);
    }
    return all;
  }

 private:
  struct place {
    pid_t pid = -1;
    std::optional<flight::rank_snapshot> end;  // once the rank has ended
  };

  flight::rank_snapshot read(std::size_t local_rank) const {
    constexpr std::size_t recent = 8;
    const place& p = places_[local_rank];
    if (p.end) return *p.end;
    flight::rank_snapshot r;
    if (all_ != nullptr) r = flight::read(all_->of(static_cast<int>(local_rank)), recent);
    // Where nodes come and go, only the rank knows its number.
    if (!elastic_ || r.at == flight::phase::none) r.rank = first_rank_ + static_cast<int>(local_rank);
    if (r.at == flight::phase::none) r.pid = p.pid;
    return r;
  }
  // Whether its main threw, and when by the steady clock.
  std::pair<outcome::exception, std::int64_t> thrown(std::size_t local_rank) const {
    if (all_ == nullptr) return {};
    const flight::head& h = all_->of(static_cast<int>(local_rank)).head();
    if (!h.is_written() || h.at() != flight::phase::failed) return {};
    const std::int64_t at =
        std::min(static_cast<std::int64_t>(h.failed_ns.load(std::memory_order_relaxed)), base::steady_ns());
    if (at <= 0) return {};  // not written by this version of the library
    const auto code = static_cast<errc>(h.failed_code.load(std::memory_order_relaxed));
    const bool of_peer = code == errc::peer_failed || code == errc::peer_left ||
                         code == errc::communicator_failed || code == errc::cancelled;
    return {of_peer ? outcome::exception::of_peer : outcome::exception::own, at};
  }

  std::unique_ptr<flight::recordings> all_;
  std::vector<place> places_;
  int first_rank_ = 0;
  std::int64_t started_ns_ = 0;
  bool elastic_;  // ranks change their numbers
};

// --trace: a thread of the launcher reads what its ranks record and writes their time line. The ranks
// themselves write no file and wait for none.
class job_trace {
 public:
  // The file of this node is the user's own on node 0, FILE.node-<k> elsewhere. Throws std::runtime_error if
  // it cannot be made. `ranks` outlives this.
  job_trace(const options& o, flight::recordings& ranks, const std::string& host)
      : ranks_(ranks),
        path_(o.node_rank == 0 ? o.trace : fmt::format("{}.node-{}", o.trace, o.node_rank)),
        host_(o.nodes > 1 ? host : "") {
    try {
      // Made now, so that a wrong name is reported before the job has run.
      flight::trace_writer(path_, {}, most_bytes_);
    } catch (const std::system_error& e) {
      throw std::runtime_error(
          fmt::format("cannot make the file '{}' of --trace: {}", path_, e.code().message()));
    }
    ranks.front().traced = 1;
  }

  // Sets the first rank of this node, once it is known.
  void begin(int first_rank) {
    const std::lock_guard lock(mutex_);
    if (writer_ != nullptr) {  // the job starts again: the same file continues
      poll();
      for (int i = 0; i < ranks_.ranks(); ++i) writer_->over(ranks_.of(i));
    }
    first_rank_ = first_rank;
    if (writer_ != nullptr) return;
    if (host_.empty()) clock_.origin_ns = base::steady_ns();
    writer_ = std::make_unique<flight::trace_writer>(path_, clock_, most_bytes_);
    const base::signals_blocked for_the_thread;
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }

  // Sets how far node 0's clock is ahead of this one's.
  void set_clock_offset(std::int64_t ns) {
    const std::lock_guard lock(mutex_);
    clock_.clock_offset_ns = ns;
    if (writer_ != nullptr) writer_->set_clock_offset(ns);
  }

  // All ranks have ended. Returns lines for the user: the contents of the file, and which ranks came last to
  // collectives.
  std::string finish() {
    thread_ = {};  // stopped and joined
    if (writer_ == nullptr) return {};
    poll();
    writer_->finish();
    std::string text = fmt::format("tutti-run: {} events are in '{}' (open it at https://ui.perfetto.dev)\n",
                                   writer_->counts().events, path_);
    for (const std::string& loss : writer_->losses()) text += fmt::format("tutti-run: {}\n", loss);
    for (const auto& [rank, late] : writer_->last_to_come())
      text +=
          fmt::format("tutti-run: rank {} came last to {} of {} collectives, on average {} after the first\n",
                      rank, late.times, writer_->collectives(),
                      flight::seconds_text(late.behind_ns / static_cast<std::int64_t>(late.times)));
    writer_.reset();
    return text;
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    std::condition_variable_any pause;
    while (!stop.stop_requested()) {
      poll();
      pause.wait_for(lock, stop, flight::between_trace_polls, [] { return false; });
    }
  }
  void poll() {
    for (int i = 0; i < ranks_.ranks(); ++i) writer_->poll(first_rank_ + i, ranks_.of(i), host_);
    writer_->flush();
  }

  flight::recordings& ranks_;
  const std::string path_;
  const std::string host_;  // empty: there is no other node
  const std::uint64_t most_bytes_ = flight::most_trace_bytes();
  std::unique_ptr<flight::trace_writer> writer_;
  int first_rank_ = 0;
  flight::trace_clock clock_;
  std::mutex mutex_;
  std::jthread thread_;
};

}  // namespace tutti::launch
