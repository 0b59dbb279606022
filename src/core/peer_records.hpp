// SPDX-License-Identifier: Apache-2.0
// peer_records: the endpoint records that a rank knows. In a large world these are the records of its host's ranks and of
// the ranks that it has connected to; the others are asked for. Used on the loop's thread.
#pragma once

#include "core/endpoint_record.hpp"
#include "core/platform.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::core {

// Has the records of all ranks of a world.
class record_source {
 public:
  virtual ~record_source() = default;
  // Returns records, perhaps with that of `rank`: none if another call has got it, or may get it when repeated.
  // Errors: errc::timed_out at the deadline; errc::peer_failed: the source has gone, or is one of another world.
  virtual task<std::vector<endpoint_record>> ask(int rank, time_point deadline) = 0;
  // This rank leaves: ends the connection once there are no calls. Returns whether it has ended.
  virtual bool close() noexcept = 0;
};

class peer_records {
 public:
  // What is known of every rank: its kind is a record without what differs from rank to rank.
  struct kind_run {
    int ranks = 0;  // that follow each other
    int kind = 0;
  };

  peer_records() = default;
  // Of all ranks, in order.
  peer_records(std::vector<endpoint_record> all) {
    for (endpoint_record& each : all) learn(std::move(each));
  }
  // Of `runs`, which cover all ranks, in order.
  peer_records(std::vector<endpoint_record> kinds, const std::vector<kind_run>& runs)
      : kinds_(std::move(kinds)) {
    int end = 0;
    for (const kind_run& each : runs) ends_[end += each.ranks] = static_cast<std::size_t>(each.kind);
  }
  // Where the others are asked for.
  void set_source(std::shared_ptr<record_source> from) noexcept { source_ = std::move(from); }

  // Null: not known yet. It stays where it is.
  const endpoint_record* find(int rank) const noexcept {
    const auto at = known_.find(rank);
    return at != known_.end() ? &at->second : nullptr;
  }
  // The record, or if it is not known, the kind: without rank (-1), host, pid and ports, but with what tells which
  // transports reach the rank.
  const endpoint_record& record_or_kind(int rank) const noexcept {
    static const endpoint_record nothing;
    if (const endpoint_record* const known = find(rank)) return *known;
    const auto kind = ends_.upper_bound(rank);
    return kind != ends_.end() ? kinds_[kind->second] : nothing;
  }
  endpoint_record& operator[](std::size_t rank) { return known_[static_cast<int>(rank)]; }
  const std::map<int, endpoint_record>& known() const noexcept { return known_; }
  std::size_t size() const noexcept { return known_.size(); }

  // Keeps a record, unless there is one.
  void learn(endpoint_record record) const { known_.try_emplace(record.rank, std::move(record)); }
  // Completes when the record of `rank` is known. Errors: those of record_source::ask().
  task<> obtain(int rank, time_point deadline) const;
  // See record_source::close().
  bool close_source() const noexcept { return source_ == nullptr || source_->close(); }

 private:
  mutable std::map<int, endpoint_record> known_;  // by rank
  std::vector<endpoint_record> kinds_;
  std::map<int, std::size_t> ends_;  // of runs: the rank after the last, and the kind
  std::shared_ptr<record_source> source_;
};

}  // namespace tutti::core
