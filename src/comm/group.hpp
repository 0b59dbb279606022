// SPDX-License-Identifier: Apache-2.0
// group: the members of a communicator in the order of their ranks, where they run, and what texts call them.
#pragma once

#include "comm/topology.hpp"
#include "core/world_info.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tutti::comm {

// The cure in errors about a rank whose loop does not answer.
inline constexpr const char* why_silent =
    "its loop thread computes or is blocked (tutti::compute takes such work off it), or the process is "
    "stopped "
    "or cut off";

// "rank 1 (…), rank 4 (…) and 12 more": at most eight names.
std::string list_of(const std::vector<std::string>& names);

class group {
 public:
  // `members` are ranks of the world, by rank of the communicator `name`, and include this rank. `world` stays valid
  // until forget_world().
  group(const core::world_info& world, std::string name, std::vector<int> members);

  int rank() const noexcept { return rank_; }  // of this rank
  int size() const noexcept { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const noexcept { return members_; }
  int world_rank(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  int rank_of(int world_rank) const noexcept {  // -1: not a member
    return world_rank < 0 || ranks_.empty() ? world_rank : ranks_[static_cast<std::size_t>(world_rank)];
  }
  const topology& places() const noexcept { return places_; }

  const std::string& name() const noexcept { return name_; }
  void rename(std::string name) { name_ = std::move(name); }
  // "rank 2 (host b, pid 77)"; if the world numbers it differently, "rank 2 (rank 3 of the world, host b, pid 77)".
  std::string describe(int rank) const;
  // For texts that number ranks as the world does: "; rank 3 of the world is rank 2 of world/group4". Empty if the
  // numbers are the same, or it is no member.
  std::string number_here(int world_rank) const;

  // From now on describe() knows numbers only.
  void forget_world() noexcept { world_ = nullptr; }

 private:
  const core::world_info* world_;
  std::string name_;
  const std::vector<int> members_;
  std::vector<int> ranks_;  // by rank of the world; -1: not a member. Empty: they are the same
  int rank_ = -1;
  topology places_;
};

}  // namespace tutti::comm
