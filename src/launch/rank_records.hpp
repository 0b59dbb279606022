// SPDX-License-Identifier: Apache-2.0
// rank_records: the flight recorders of this node's ranks, in memory of the launcher. It can read them while
// a rank computes, is stopped, or after it was killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flight/recordings.hpp"
#include "flight/snapshot.hpp"
#include "launch/outcome.hpp"

namespace tutti::launch {

class rank_records {
 public:
  // `operations` of each rank. If there is no memory for it, ranks keep their own and nothing is read here.
  rank_records(int ranks, std::size_t operations, bool elastic = false);

  int descriptor() const { return all_ != nullptr ? all_->descriptor() : -1; }
  // "TUTTI_FLIGHT=..." for a rank; empty if there is none.
  std::string variable(int local_rank) const;
  flight::recordings* memory() const { return all_.get(); }

  // The ranks start, or start again.
  void begin_start(int first_rank, int world_size);
  void starting(int local_rank);
  void started(int local_rank, pid_t pid);
  // Keeps what the rank's recorder says at this moment, and adds to `end` whether its main threw.
  void ended(outcome& end);
  // The process of the running rank whose main threw first, if it did so within the last `age`; -1: none.
  pid_t ends_by_exception(std::chrono::nanoseconds age) const;

  // The records of every rank of this node, as of now.
  std::vector<flight::rank_snapshot> read() const;
  // The last operations of a rank that has ended, as lines for its report.
  std::string last_operations(int rank) const;

  // Increases whenever an operation of any rank starts or ends.
  std::uint64_t progress() const;
  bool any_pending() const;

 private:
  struct place {
    pid_t pid = -1;
    std::optional<flight::rank_snapshot> end;  // once the rank has ended
  };
  flight::rank_snapshot read(std::size_t local_rank) const;
  struct exception {
    outcome::exception kind = outcome::exception::none;
    std::int64_t at_ns = 0;
  };
  exception thrown(std::size_t local_rank) const;

  std::unique_ptr<flight::recordings> all_;
  std::vector<place> places_;
  int first_rank_ = 0;
  int world_size_ = 0;
  std::int64_t started_ns_ = 0;
  bool elastic_;  // ranks change their numbers
};

}  // namespace tutti::launch
