// SPDX-License-Identifier: Apache-2.0
// host_segments: the collective segments of a communicator whose ranks share memory. Few ranks have one segment. Of
// more ranks each is in two, that of its group and that of its column (comm/grouping.hpp), for reading what every
// other rank writes costs time in proportion to the ranks, and traffic to their square.
#pragma once

#include "comm/collective_segment.hpp"
#include "comm/grouping.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::comm {

class host_segments {
 public:
  // A segment and its ranks, by their number in it; the ranks are those of the communicator.
  struct level {
    level(core::loop& loop, transport::neighbours& near, std::span<const int> members, std::vector<int> ranks,
          int rank);
    int number_of(int rank) const noexcept;  // -1: it is not in it
    const std::vector<int> ranks;
    const int own;  // this rank's number
    collective_segment segment;
  };

  // `members` are ranks of the world. Null: there are too many for two levels.
  static std::unique_ptr<host_segments> make(core::loop& loop, transport::neighbours& near,
                                             std::span<const int> members,
                                             std::span<const std::string> caches, int rank);

  // Up to so many ranks have one segment: TUTTI_FLAT_RANKS, or 16.
  static int most_flat_ranks();

  // Null: there is one segment.
  const grouping* groups() const noexcept { return groups_.get(); }
  level& near() noexcept { return near_; }  // of all ranks, or of this rank's group
  level& across() noexcept { return *across_; }
  // The segment of all ranks; null: there are two levels.
  collective_segment* flat() noexcept { return across_ == nullptr ? &near_.segment : nullptr; }

  // Whether a collective has been started that uses them. Then their memory is there, or is being made.
  void want() noexcept { wanted_ = true; }
  bool wanted() const noexcept { return wanted_; }
  // The rank (of the communicator) that collective `sequence` waits for, or -1.
  int waits_for(std::uint32_t sequence) const noexcept;
  void rank_gone(int rank, errc why, const std::string& text) noexcept;
  void leave(bool failed) noexcept {
    near_.segment.leave(failed);
    if (across_ != nullptr) across_->segment.leave(failed);
  }
  bool can_go() const noexcept {
    return for_all([](const auto& s) { return s.can_go(); });
  }
  void keep_part() noexcept {
    near_.segment.keep_part();
    if (across_ != nullptr) across_->segment.keep_part();
  }

 private:
  host_segments(core::loop& loop, transport::neighbours& near, std::span<const int> members,
                std::unique_ptr<grouping> groups, int rank);
  template <class Test>
  bool for_all(Test test) const noexcept {
    return test(near_.segment) && (across_ == nullptr || test(across_->segment));
  }

  std::unique_ptr<grouping> groups_;
  level near_;
  std::unique_ptr<level> across_;
  bool wanted_ = false;
};

}  // namespace tutti::comm
