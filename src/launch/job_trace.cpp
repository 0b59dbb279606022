// SPDX-License-Identifier: Apache-2.0
#include "launch/job_trace.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <stdexcept>
#include <system_error>

#include "base/cycles.hpp"
#include "base/text.hpp"
#include "flight/explanation.hpp"

namespace tutti::launch {

job_trace::job_trace(const options& o, flight::recordings& ranks, const std::string& host)
    : ranks_(ranks),
      path_(o.node_rank == 0 ? o.trace : fmt::format("{}.node-{}", o.trace, o.node_rank)),
      host_(host),
      several_nodes_(o.nodes > 1),
      most_bytes_(flight::most_trace_bytes()) {
  try {
    // Made now, so that a wrong name is reported before the job has run.
    flight::trace_writer(path_, {}, most_bytes_);
  } catch (const std::system_error& e) {
    throw std::runtime_error(
        fmt::format("cannot make the file '{}' of --trace: {}", path_, e.code().message()));
  }
  ranks.front().traced = 1;
}

void job_trace::set_clock_offset(std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  clock_offset_ns_ = ns;
  if (writer_ != nullptr) writer_->set_clock_offset(ns);
}

void job_trace::begin(int first_rank) {
  const std::lock_guard lock(mutex_);
  first_rank_ = first_rank;
  if (writer_ != nullptr) {  // the job starts again: the same file continues
    poll();
    for (int i = 0; i < ranks_.ranks(); ++i) writer_->over(first_rank_ + i);
    return;
  }
  writer_ = std::make_unique<flight::trace_writer>(
      path_, flight::trace_clock{several_nodes_ ? 0 : base::steady_ns(), clock_offset_ns_}, most_bytes_);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void job_trace::poll() {
  for (int i = 0; i < ranks_.ranks(); ++i)
    writer_->poll(first_rank_ + i, ranks_.of(i), several_nodes_ ? host_ : "");
  writer_->flush();
}

void job_trace::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::condition_variable_any pause;
  while (!stop.stop_requested()) {
    poll();
    pause.wait_for(lock, stop, flight::between_trace_polls, [] { return false; });
  }
}

std::string job_trace::finish() {
  thread_ = {};  // stopped and joined
  if (writer_ == nullptr) return {};
  poll();
  writer_->finish();
  const flight::trace_writer::totals n = writer_->counts();
  std::string text =
      fmt::format("tutti-run: {} events are in '{}' (open it at https://ui.perfetto.dev)\n", n.events, path_);
  if (n.error != 0)
    text += fmt::format("tutti-run: that file is incomplete: {}\n", base::write_error_text(n.error));
  if (n.left_out != 0)
    text +=
        fmt::format("tutti-run: {} more were left out of it: it has {} MiB (TUTTI_TRACE_MIB sets how many)\n",
                    n.left_out, most_bytes_ >> 20);
  if (n.lost != 0)
    text += fmt::format(
        "tutti-run: {} operations were too many for the recorder (TUTTI_FLIGHT_OPERATIONS makes it larger)\n",
        n.lost);
  for (const auto& [rank, late] : writer_->last_to_come())
    text +=
        fmt::format("tutti-run: rank {} came last to {} of {} collectives, on average {} after the first\n",
                    rank, late.times, writer_->collectives(),
                    flight::seconds_text(late.behind_ns / static_cast<std::int64_t>(late.times)));
  writer_.reset();
  return text;
}

}  // namespace tutti::launch
