// SPDX-License-Identifier: Apache-2.0
// job_trace: --trace: a thread of the launcher reads what its ranks record and writes their time line. The
// ranks themselves write no file and wait for none.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "flight/recordings.hpp"
#include "flight/trace_writer.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

class job_trace {
 public:
  // The file of this node is the user's own on node 0, FILE.node-<k> elsewhere. Throws std::runtime_error if
  // it cannot be made. `ranks` outlives this.
  job_trace(const options& o, flight::recordings& ranks, const std::string& host);

  // Sets the first rank of this node, once it is known.
  void begin(int first_rank);
  // Sets how far node 0's clock is ahead of this one's.
  void set_clock_offset(std::int64_t ns);
  // All ranks have ended. Returns lines for the user: the contents of the file, and which ranks came last to
  // collectives.
  std::string finish();

 private:
  void work(const std::stop_token& stop);
  void poll();

  flight::recordings& ranks_;
  std::string path_;
  std::string host_;
  bool several_nodes_;
  std::uint64_t most_bytes_;
  std::unique_ptr<flight::trace_writer> writer_;
  int first_rank_ = 0;
  std::int64_t clock_offset_ns_ = 0;
  std::mutex mutex_;
  std::jthread thread_;
};

}  // namespace tutti::launch
