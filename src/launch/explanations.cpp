// SPDX-License-Identifier: Apache-2.0
#include "launch/explanations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/text.hpp"
#include "flight/explanation.hpp"

namespace tutti::launch {
namespace {

// A launcher reads memory and answers.
constexpr std::chrono::milliseconds answer_limit{600};
// One signal to all ranks makes each of them ask.
constexpr std::chrono::milliseconds same_question{200};

}  // namespace

explanations::explanations(boost::asio::io_context& loop, outlets to) : to_(std::move(to)), patience_(loop) {}

bool explanations::take(int node, const event& what) {
  if (std::holds_alternative<explanation_wanted>(what)) {
    begin();
    return true;
  }
  const auto* const told = std::get_if<records_told>(&what);
  if (told == nullptr) return false;
  if (!running_ || !asked_.contains(node)) return true;
  told_.insert(told_.end(), told->ranks.begin(), told->ranks.end());
  if (told->last) lost(node);
  return true;
}

void explanations::lost(int node) {
  if (asked_.erase(node) > 0 && asked_.empty()) conclude();
}

void explanations::begin() {
  const auto now = std::chrono::steady_clock::now();
  if (running_ || now - last_ < same_question) return;
  const std::vector<int> nodes = to_.nodes();
  asked_ = {nodes.begin(), nodes.end()};
  told_.clear();
  running_ = true;
  patience_.expires_after(answer_limit);
  patience_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) conclude();
  });
  for (const int node : nodes) to_.ask(node);
}

void explanations::conclude() {
  if (!running_) return;
  running_ = false;
  last_ = std::chrono::steady_clock::now();
  patience_.cancel();
  std::sort(told_.begin(), told_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::string text = "tutti-run: who waits for whom:\n" + flight::explain(told_);
  if (!asked_.empty())
    text += fmt::format("tutti-run: node {} did not tell within {} ms what its ranks are at\n",
                        base::rank_list({asked_.begin(), asked_.end()}), answer_limit.count());
  told_.clear();
  asked_.clear();
  to_.say(text);
}

}  // namespace tutti::launch
