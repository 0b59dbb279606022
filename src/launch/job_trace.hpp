// SPDX-License-Identifier: Apache-2.0
// job_trace: --trace: the launcher's loop reads what its ranks record and writes their time line. The ranks
// themselves write no file and wait for none.
#pragma once

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/cycles.hpp"
#include "base/text.hpp"
#include "flight/explanation.hpp"
#include "flight/recordings.hpp"
#include "flight/trace_writer.hpp"
#include "launch/options.hpp"
#include "launch/run_after.hpp"

namespace tutti::launch {

class job_trace {
 public:
  // The file of this node is the user's own on node 0, FILE.node-<k> elsewhere. Throws std::runtime_error if
  // it cannot be made. `ranks` outlives this.
  job_trace(boost::asio::io_context& loop, const options& o, flight::recordings& ranks, const std::string& host)
      : ranks_(ranks),
        path_(o.node_rank == 0 ? o.trace : fmt::format("{}.node-{}", o.trace, o.node_rank)),
        host_(o.nodes > 1 ? host : ""),
        pause_(loop) {
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
    first_rank_ = first_rank;
    if (writer_ != nullptr) {  // the job starts again: the same file continues
      poll();
      for (int i = 0; i < ranks_.ranks(); ++i) writer_->over(first_rank_ + i);
      return;
    }
    if (host_.empty()) clock_.origin_ns = base::steady_ns();
    writer_ = std::make_unique<flight::trace_writer>(path_, clock_, most_bytes_);
    go_on();
  }

  // Sets how far node 0's clock is ahead of this one's.
  void set_clock_offset(std::int64_t ns) {
    clock_.clock_offset_ns = ns;
    if (writer_ != nullptr) writer_->set_clock_offset(ns);
  }

  // All ranks have ended. Returns lines for the user: the contents of the file, and which ranks came last to
  // collectives.
  std::string finish() {
    pause_.cancel();
    if (writer_ == nullptr) return {};
    poll();
    writer_->finish();
    const flight::trace_writer::totals n = writer_->counts();
    std::string text = fmt::format("tutti-run: {} events are in '{}' (open it at https://ui.perfetto.dev)\n",
                                   n.events, path_);
    if (n.error != 0)
      text += fmt::format("tutti-run: that file is incomplete: {}\n", base::write_error_text(n.error));
    if (n.left_out != 0)
      text += fmt::format(
          "tutti-run: {} more were left out of it: it has {} MiB (TUTTI_TRACE_MIB sets how many)\n",
          n.left_out, most_bytes_ >> 20);
    if (n.lost != 0)
      text += fmt::format(
          "tutti-run: {} operations were too many for the recorder (TUTTI_FLIGHT_OPERATIONS makes it "
          "larger)\n",
          n.lost);
    for (const auto& [rank, late] : writer_->last_to_come())
      text +=
          fmt::format("tutti-run: rank {} came last to {} of {} collectives, on average {} after the first\n",
                      rank, late.times, writer_->collectives(),
                      flight::seconds_text(late.behind_ns / static_cast<std::int64_t>(late.times)));
    writer_.reset();
    return text;
  }

 private:
  void go_on() {
    if (writer_ == nullptr) return;  // finished in the same turn
    poll();
    run_after(pause_, flight::between_trace_polls, [this] { go_on(); });
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
  boost::asio::steady_timer pause_;
};

}  // namespace tutti::launch
