// SPDX-License-Identifier: Apache-2.0
// The files of one rank in a run: no other rank writes them.
//
//   run.json                  what the run is; by whichever rank comes first
//   rank-3.json               this rank: host, process, and a sign of life; replaced at each heartbeat
//   rank-3.jsonl              all that it said, one JSON object a line
//   rank_3/events.out.tfevents.*   the same for TensorBoard, to which each label is a run; one file a start
//   console/rank-3.out, .err  what it printed
//   artifacts/rank-3/, images/rank-3/
//
// What is not labelled as a rank has "label-<label>" in place of "rank-3", and "<label>" in place of "rank_3".
// With a run per rank, all of it is in rank-3/, and so are its event files.
#pragma once

#include "comm/identity.hpp"
#include "track/append_file.hpp"
#include "track/event_encoding.hpp"
#include "track/record.hpp"
#include "track/run_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace tutti::track {

struct progress_counts {
  std::uint64_t written = 0, dropped = 0, failed = 0;
};

class rank_files {
 public:
  // Makes them, or goes on in them. `number`: how many runs this rank has opened on this communicator before.
  // who.rank is -1 in a process outside of a communicator. Throws tutti::error.
  rank_files(const comm::identity& who, const track::options& o, std::uint64_t number);

  const std::filesystem::path& directory() const noexcept { return directory_; }
  std::filesystem::path console_stem() const;
  // When the run was made, in seconds since 1970: the samples of all its ranks and starts lie on one axis.
  double origin() const noexcept { return origin_; }

  // Prepares lines and events for the next flush(); writes what is a file of its own. False: it could not be
  // written.
  bool put(const record& r);
  // Everything put since the last. False: its lines could not be written. That only its events could not,
  // failure() tells.
  bool flush();
  // The text of the last failure, or empty.
  const std::string& failure() const noexcept { return failure_; }

  // `state`: running, finished or closed. `console`: captured, or why not.
  void put_status(std::string_view state, const progress_counts& counts, std::string_view console);

 private:
  struct putter;
  // Where the event of this place goes.
  std::string& events_at(const event_place& place);
  bool put_file(const std::string& folder, const std::string& name, std::string_view bytes,
                const std::filesystem::path* from, std::string& path_in_run);
  std::string run_facts_json(const std::string& name) const;
  bool fail(std::string text);

  const comm::identity who_;
  const track::options options_;
  const process_identity process_;
  const double opened_;
  double origin_ = opened_;
  std::string label_;  // of the series
  std::string stem_;   // of the files
  std::filesystem::path directory_;
  append_file lines_file_, events_file_;
  std::string lines_, events_;               // not yet written
  bool goes_on_ = false;                     // what another start has written
  std::set<std::string, std::less<>> tags_;  // of this start, where it goes on
  track::hyperparameter_map hyperparameters_;
  std::string failure_;
};

// Whether a file of this name stays inside of its folder.
bool is_inside(std::string_view name);

}  // namespace tutti::track
