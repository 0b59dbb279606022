// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

namespace tutti::comm {

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const std::string text = fmt::format("{}", fmt::join(std::views::take(names, most), ", "));
  return names.size() <= most ? text : fmt::format("{} and {} more", text, names.size() - most);
}

group::group(const core::world_info& world, std::string name, std::vector<int> members)
    : world_(&world), name_(std::move(name)), members_(std::move(members)) {
  std::vector<int> hosts;
  const bool is_world = std::cmp_equal(members_.size(), world.size) && std::ranges::is_sorted(members_);
  if (!is_world) ranks_.resize(static_cast<std::size_t>(world.size), -1);
  for (int r = 0; r < size(); ++r) {
    const int member = world_rank(r);
    if (!is_world) ranks_[static_cast<std::size_t>(member)] = r;
    if (member == world.rank) rank_ = r;
    hosts.push_back(world.hosts.host_of(member));
  }
  places_ = topology(hosts, rank_);
}

std::string group::describe(int rank) const {
  if (world_ == nullptr) return fmt::format("rank {}", rank);
  const int there = world_rank(rank);
  if (there == rank) return world_->describe(rank);
  const core::endpoint_record* const record = world_->peers.find(there);
  if (record == nullptr) return fmt::format("rank {} (rank {} of the world)", rank, there);
  return fmt::format("rank {} (rank {} of the world, host {}, pid {})", rank, there, record->host,
                     record->pid);
}

std::string group::number_here(int world_rank) const {
  const int rank = rank_of(world_rank);
  if (rank < 0 || rank == world_rank) return {};
  return fmt::format("; rank {} of the world is rank {} of {}", world_rank, rank, name_);
}

}  // namespace tutti::comm
