// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/membership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::bootstrap {

void membership::started(int node, int number, int start) {
  process& p = processes_[number];
  p = process{};
  p.node = node;
  p.start = start;
  std::erase(world_, number);
}

void membership::ended(int number, int start, bool well) {
  const auto found = processes_.find(number);
  if (found == processes_.end() || found->second.start != start) return;
  process& p = found->second;
  p.alive = false;
  p.ended_well = well;
  p.waits.reset();
}

void membership::node_lost(int node) {
  for (auto& [number, p] : processes_)
    if (p.node == node && p.alive) ended(number, p.start, false);
}

void membership::came(arrival who) {
  const auto found = processes_.find(who.number);
  if (found == processes_.end()) return;
  // It may be heard of before the end of its predecessor is.
  if (who.start > found->second.start) started(found->second.node, who.number, who.start);
  if (found->second.start == who.start && found->second.alive) found->second.waits = std::move(who);
}

void membership::withdrew(std::size_t place) {
  for (auto& [number, p] : processes_)
    if (p.waits && p.waits->place == place) p.waits.reset();
}

std::vector<std::size_t> membership::waiting() const {
  std::vector<std::size_t> places;
  for (const auto& [number, p] : processes_)
    if (p.waits) places.push_back(p.waits->place);
  return places;
}

std::vector<int> membership::living_members() const {
  std::vector<int> living;
  for (const int number : world_)
    if (processes_.at(number).alive) living.push_back(number);
  return living;
}

std::vector<int> membership::complete_newcomers() const {
  std::set<int> incomplete;
  for (const auto& [number, p] : processes_)
    if (p.alive && !p.member && !p.waits) incomplete.insert(p.node);
  std::vector<int> complete;
  for (const auto& [number, p] : processes_)
    if (p.alive && !p.member && !incomplete.contains(p.node)) complete.push_back(number);
  return complete;
}

int membership::nodes_of(const std::vector<int>& numbers) const {
  std::set<int> nodes;
  for (const int number : numbers) nodes.insert(processes_.at(number).node);
  return static_cast<int>(nodes.size());
}

int membership::newcomers() const { return static_cast<int>(complete_newcomers().size()); }

bool membership::over() const {
  return !world_.empty() && living_members().empty() &&
         std::any_of(world_.begin(), world_.end(), [&](int n) { return processes_.at(n).ended_well; });
}

std::optional<membership::world> membership::decide() {
  if (!obstacle().empty()) return std::nullopt;
  std::vector<int> numbers = living_members();
  const std::vector<int> after = complete_newcomers();
  numbers.insert(numbers.end(), after.begin(), after.end());
  if (numbers.empty()) return std::nullopt;
  for (auto& [number, p] : processes_) p.member = false;
  world next;
  next.epoch = ++epoch_;
  for (const int number : numbers) {
    process& p = processes_.at(number);
    p.member = true;
    next.members.push_back(std::move(*p.waits));
    p.waits.reset();
  }
  world_ = std::move(numbers);
  return next;
}

std::string membership::obstacle() const {
  if (over()) return "the job has ended";
  std::vector<int> absent;
  for (const auto& [number, p] : processes_)
    if (p.alive && !p.waits && (p.member || epoch_ < 0)) absent.push_back(number);
  std::vector<int> there = living_members();
  const std::vector<int> after = complete_newcomers();
  if (absent.size() == there.size() && epoch_ >= 0 && !there.empty()) {
    // No rank of the present world has come: it goes on unchanged.
    return "no rank of the running world has called rejoin()";
  }
  if (!absent.empty())
    return fmt::format("rank {} of tutti-run's numbering (its prefix) {}", absent.front(),
                       epoch_ < 0 ? "has not called tutti::run or init" : "has not called rejoin()");
  there.insert(there.end(), after.begin(), after.end());
  const int nodes = nodes_of(there);
  if (nodes < least_nodes_)
    return fmt::format("{} of at least {} nodes {} there: start tutti-run on more of them", nodes,
                       least_nodes_, nodes == 1 ? "is" : "are");
  return "";
}

}  // namespace tutti::bootstrap
