// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>

namespace tutti::comm {

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const std::string text = fmt::format("{}", fmt::join(std::views::take(names, most), ", "));
  return names.size() <= most ? text : fmt::format("{} and {} more", text, names.size() - most);
}

group::group(const core::world_info& world, std::string name, std::vector<int> members)
    : world_(&world), name_(std::move(name)), members_(std::move(members)), ranks_(world.peers.size(), -1) {
  std::vector<std::string> host_ids;
  for (int r = 0; r < size(); ++r) {
    const int member = world_rank(r);
    ranks_[static_cast<std::size_t>(member)] = r;
    if (member == world.rank) rank_ = r;
    host_ids.push_back(world.record(member).host_id);
  }
  places_ = topology(host_ids, rank_);
}

std::string group::describe(int rank) const {
  if (world_ == nullptr) return fmt::format("rank {}", rank);
  const int there = world_rank(rank);
  if (there == rank) return world_->describe(rank);
  const core::endpoint_record& record = world_->record(there);
  return fmt::format("rank {} (rank {} of the world, host {}, pid {})", rank, there, record.host, record.pid);
}

std::string group::number_here(int world_rank) const {
  const int rank = rank_of(world_rank);
  if (rank < 0 || rank == world_rank) return {};
  return fmt::format("; rank {} of the world is rank {} of {}", world_rank, rank, name_);
}

}  // namespace tutti::comm
