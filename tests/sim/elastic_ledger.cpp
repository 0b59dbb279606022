// SPDX-License-Identifier: Apache-2.0
#include "sim/elastic_ledger.hpp"

#include <algorithm>

namespace tutti::test {

void elastic_ledger::joined(std::int64_t process, const core::world_info& info) {
  const int epoch = static_cast<int>(info.epoch);
  if (info.size != static_cast<int>(info.peers.size()) || info.record(info.rank).pid != process)
    return wrong("a process has the rank of another one");
  world w;
  w.id = info.id;
  for (const auto& [rank, r] : info.peers.known()) {
    w.members.push_back(r.pid);
    w.nodes.push_back(std::stoi(r.host));
  }
  const auto [place, is_new] = worlds_.try_emplace(epoch, w);
  if (is_new) return check_new(epoch, w);
  if (place->second.id != w.id || place->second.members != w.members) wrong("an epoch has two worlds");
}

void elastic_ledger::check_new(int epoch, const world& w) {
  if (std::set<std::int64_t>(w.members.begin(), w.members.end()).size() != w.members.size())
    wrong("a process is in a world twice");
  if (static_cast<int>(std::set<int>(w.nodes.begin(), w.nodes.end()).size()) < least_nodes_)
    wrong("a world has fewer nodes than MIN");
  const auto earlier = worlds_.find(epoch - 1);
  if (earlier == worlds_.end()) {
    // All members died before they had the table, and so did all processes that could contradict.
    return;
  }
  const std::vector<std::int64_t>& before = earlier->second.members;
  std::vector<std::int64_t> stay;
  int may_run = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::find(w.members.begin(), w.members.end(), before[i]) != w.members.end()) {
      stay.push_back(before[i]);
    } else if (!gone_.contains(before[i]) && !may_die_.contains(earlier->second.nodes[i])) {
      ++may_run;
    }
  }
  if (!std::equal(stay.begin(), stay.end(), w.members.begin())) wrong("members have lost their order");
  if (majority_ && may_run > 0 && static_cast<int>(stay.size()) <= may_run) wrong("a minority goes on");
  if (stay.empty()) {
    ++held_back_;
    if (may_run > 0) wrong("a world of newcomers has begun while one of the last could go on");
  }
}

void elastic_ledger::begins(int epoch, int step) {
  world& w = worlds_.at(epoch);
  if (static_cast<int>(w.begun.size()) <= step) w.begun.push_back(++ticks_);
}

// A member may complete a step that others began, and sent their part of, before they left.
void elastic_ledger::stepped(int epoch, int step) {
  ++steps_;
  world& w = worlds_.at(epoch);
  if (w.worked == 0) w.worked = ++ticks_;
  for (const auto& [later, other] : worlds_)
    if (later > epoch && other.worked != 0 && other.worked < w.begun[static_cast<std::size_t>(step)])
      wrong("the world of epoch " + std::to_string(epoch) + " works while that of epoch " +
            std::to_string(later) + " does");
}

std::vector<std::pair<std::int64_t, int>> elastic_ledger::missed_by(std::int64_t process, int* epoch) const {
  std::vector<std::pair<std::int64_t, int>> all;
  if (worlds_.empty()) return all;
  const auto& [newest, w] = *worlds_.rbegin();
  if (std::find(w.members.begin(), w.members.end(), process) == w.members.end()) return all;
  for (std::size_t i = 0; i < w.members.size(); ++i) all.emplace_back(w.members[i], w.nodes[i]);
  *epoch = newest;
  return all;
}

void elastic_ledger::failed(const error& e) {
  const std::string text = e.what();
  if (text.find("no quorum") != text.npos) ++minorities_;
  failures_.push_back(text);
}

std::string elastic_ledger::text() const {
  std::string text = "at least " + std::to_string(least_nodes_) + (majority_ ? " nodes, majority" : " nodes");
  for (const auto& [epoch, w] : worlds_) {
    text += "\nepoch " + std::to_string(epoch) + ":";
    for (std::size_t i = 0; i < w.members.size(); ++i)
      text += " " + std::to_string(w.members[i]) + "@" + std::to_string(w.nodes[i]);
  }
  for (const std::string& f : failures_) text += "\na process failed: " + f;
  return text;
}

void elastic_ledger::add_to(elastic_census& all) const {
  all.worlds += static_cast<int>(worlds_.size());
  all.steps += steps_;
  all.finished += finishes_ > 0 ? 1 : 0;
  all.minorities += minorities_;
  all.held_back += held_back_;
}

}  // namespace tutti::test
