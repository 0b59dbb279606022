// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/membership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::bootstrap {

void membership::count(int number, const process& p, int by) {
  if (p.alive && !p.waits && (p.member || epoch_ < 0)) {
    if (by > 0)
      absent_.insert(number);
    else
      absent_.erase(number);
  }
  if (!p.alive) return;
  if (p.member) {
    living_ += by;
    return;
  }
  newcomers_of_node& there = newcomers_of_[p.node];
  newcomers_ -= there.complete();
  there.all += by;
  if (p.waits) there.waiting += by;
  newcomers_ += there.complete();
}

template <class F>
void membership::change(int number, const F& f) {
  process& p = processes_.at(number);
  count(number, p, -1);
  f(p);
  count(number, p, +1);
}

void membership::resume(std::int64_t epoch, const std::vector<arrival>& members) {
  epoch_ = epoch;
  for (const arrival& each : members) {
    process& p = processes_[each.number];
    p.node = unknown_node;
    p.start = each.start;
    p.member = true;
    count(each.number, p, +1);
    world_.push_back(each.number);
  }
}

void membership::started(int node, int number, int start) {
  const auto [at, is_new] = processes_.try_emplace(number);
  process& p = at->second;
  if (!is_new) {
    if (p.node == unknown_node) p.node = node;
    if (p.start >= start) return;  // its own arrival was heard of first
    count(number, p, -1);
    p = process();
  }
  p.node = node;
  p.start = start;
  count(number, p, +1);
  std::erase(world_, number);
}

void membership::ended(int number, int start, bool well) {
  const auto found = processes_.find(number);
  if (found == processes_.end() || found->second.start != start) return;
  change(number, [well](process& p) {
    p.alive = false;
    p.ended_well = well;
    p.waits.reset();
  });
}

void membership::node_ended(int node) {
  for (const auto& [number, p] : processes_)
    if (p.node == node && p.alive) ended(number, p.start, false);
}

int membership::node_lost(int node) {
  ++losses_;
  for (const auto& [number, p] : processes_)
    if (p.node == node && p.alive && p.member) doubts_.insert(losses_);
  node_ended(node);
  return losses_;
}

void membership::overdue(int loss) { doubts_.erase(loss); }

void membership::came(arrival who) {
  const auto found = processes_.find(who.number);
  if (found == processes_.end()) return;
  // It may be heard of before the end of its predecessor is.
  if (who.start > found->second.start) started(found->second.node, who.number, who.start);
  if (found->second.start != who.start || !found->second.alive) return;
  const int number = who.number;
  change(number, [&who](process& p) { p.waits = std::move(who); });
}

void membership::withdraw(std::uint64_t place) {
  for (const auto& [number, p] : processes_)
    if (p.waits && p.waits->place == place) change(number, [](process& q) { q.waits.reset(); });
}

std::vector<int> membership::next_members() const {
  std::vector<int> numbers;
  for (const int number : world_)
    if (processes_.at(number).alive) numbers.push_back(number);
  for (const auto& [number, p] : processes_)
    if (p.alive && !p.member && newcomers_of_.at(p.node).complete() > 0) numbers.push_back(number);
  return numbers;
}

bool membership::over() const {
  return !world_.empty() && living_ == 0 &&
         std::any_of(world_.begin(), world_.end(), [&](int n) { return processes_.at(n).ended_well; });
}

std::optional<membership::world> membership::decide() {
  if (!obstacle().empty()) return std::nullopt;
  std::vector<int> numbers = next_members();
  if (numbers.empty()) return std::nullopt;
  world next;
  next.epoch = ++epoch_;
  for (auto& [number, p] : processes_) p.member = false;
  for (const int number : numbers) {
    process& p = processes_.at(number);
    p.member = true;
    next.members.push_back(std::move(*p.waits));
    p.waits.reset();
  }
  world_ = std::move(numbers);
  doubts_.clear();
  absent_.clear();
  newcomers_of_.clear();
  newcomers_ = living_ = 0;
  for (const auto& [number, p] : processes_) count(number, p, +1);
  return next;
}

std::string membership::minority() const {
  const int in_doubt = may_still_run();
  if (quorum_ == quorum::none || in_doubt == 0 || living_ > in_doubt) return "";
  return fmt::format(
      "no quorum: of the last world {} {} left here, and {} may still run on nodes that are out of reach. "
      "More than half are needed (--quorum majority); start the job anew from what was saved",
      living_ == 1 ? "1 rank" : fmt::format("{} ranks", living_), living_ == 1 ? "is" : "are", in_doubt);
}

std::string membership::obstacle() const {
  if (over()) return "the job has ended";
  if (std::string why = minority(); !why.empty()) return why;
  if (epoch_ >= 0 && living_ > 0 && absent_.size() == static_cast<std::size_t>(living_)) {
    // No rank of the present world has come: it goes on unchanged.
    return "no rank of the running world has called rejoin()";
  }
  if (!absent_.empty())
    return fmt::format("rank {} of tutti-run's numbering (its prefix) {}", *absent_.begin(),
                       epoch_ < 0 ? "has not called tutti::run or init" : "has not called rejoin()");
  if (living_ == 0 && may_still_run() > 0)
    return "ranks of the last world may still run on a node that is out of reach";
  std::set<int> nodes;
  for (const int number : next_members()) nodes.insert(processes_.at(number).node);
  if (static_cast<int>(nodes.size()) < least_nodes_)
    return fmt::format("{} of at least {} nodes {} there: start tutti-run on more of them", nodes.size(),
                       least_nodes_, nodes.size() == 1 ? "is" : "are");
  return "";
}

}  // namespace tutti::bootstrap
