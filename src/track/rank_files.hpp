// SPDX-License-Identifier: Apache-2.0
// rank_files: the files of one rank in a run: no other rank writes them.
//
//   run.json                  what the run is; by whichever rank comes first
//   rank-3.json               this rank: host, process, and heartbeat; replaced at each heartbeat
//   rank-3.jsonl              all its records, one JSON object per line
//   rank_3/events.out.tfevents.*   the same for TensorBoard, to which each label is a run; one file per start
//   console/rank-3.out, .err  what it printed
//   artifacts/rank-3/, images/rank-3/
//
// Labels other than a rank's have "label-<label>" in place of "rank-3", and "<label>" in place of "rank_3".
// With a run per rank, all of it is in rank-3/, and so are its event files.
#pragma once

#include "track/record_queue.hpp"
#include "track/run_directory.hpp"
#include "track/run_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <tutti/extend/side_channel.hpp>

namespace tutti::track {

class rank_files {
 public:
  // Makes the files, or continues them. `number` is how many runs this rank has opened on this communicator
  // before. who.rank is -1 in a process without a communicator. Throws tutti::error.
  rank_files(const extend::identity& who, const track::options& o, std::uint64_t number);

  const std::filesystem::path& directory() const noexcept { return directory_; }
  std::filesystem::path console_stem() const { return directory_ / "console" / stem_; }
  // When the run was made, in seconds since 1970: the samples of all its ranks and starts have one axis.
  double origin() const noexcept { return origin_; }

  // Prepares lines and events for the next flush(); writes records that are files of their own. Returns false
  // if those could not be written.
  bool put(const record& r);
  // Writes everything put since the last flush. Returns false if its lines could not be written. If only its
  // events could not, failure() says so.
  bool flush();
  // Why records could not be written, each reason once; or empty.
  const std::string& failure() const noexcept { return failure_; }

  // `state` is running, finished or closed. `console`: captured, or why not.
  void put_status(std::string_view state, const totals& counts, std::string_view console);

 private:
  struct putter;
  // Where the event of this record goes.
  std::string& events_for(const record& r);
  bool put_file(const std::string& folder, const std::string& name, std::string_view bytes,
                const std::filesystem::path* from, std::string& path_in_run);
  std::string run_facts_line(const std::string& name) const;
  bool fail(std::string text);

  const extend::identity who_;
  const track::options options_;
  const process_identity process_;
  const double opened_;
  double origin_ = opened_;
  std::string label_;  // of the series
  std::string stem_;   // of the files
  std::filesystem::path directory_;
  append_file lines_file_, events_file_;
  std::string lines_, events_;  // not yet written
  bool goes_on_ = false;        // another start has written here
  std::set<std::string> tags_;  // of this start, if it continues a run
  track::hyperparameter_map hyperparameters_;
  std::string failure_;
};

// Whether a file of this name stays inside its folder.
bool is_inside(std::string_view name);

}  // namespace tutti::track
